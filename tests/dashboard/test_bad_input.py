"""The dashboard beside a server that is given everything at once."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pynvml
import pytest

from doubles import UUIDS, ScriptedNvml
from workbench import Workbench
from workbench.core import server_core
from workbench.core.placement import Placement, place
from workbench.dashboard.dashboard import Dashboard
from workbench.errors import LoadFailed
from workbench.memory.device import Gpus
from workbench.settings import Settings
from workbench.tensor import Array

DECLARED = {"x": ("FP32", [-1])}
NASTY = "<script>alert(1)</script>" + "x" * 175


def echo(x: Array) -> Array:
    return x


@pytest.fixture
def server() -> Iterator[Workbench]:
    with Workbench(None, budget="64MiB", device="cpu", port=0) as server:
        yield server


def is_live(server: Workbench) -> bool:
    return httpx.get(f"{server.url}/v2/health/live", timeout=30).status_code == 200


def test_a_thousand_models() -> None:
    """The table has some rows and says how many are left out; all can be chosen."""
    server = Workbench(None, budget="64MiB", device="cpu", port=0)
    for number in range(1000):
        server.register(echo, name=f"m{number}", inputs=DECLARED, outputs=DECLARED, memory="1KiB")
    with server:
        check_a_thousand(server)


def check_a_thousand(server: Workbench) -> None:
    dashboard = server.dashboard()
    dashboard.draw()
    assert dashboard._live.value.count("<tr") == 31
    assert "970 more models" in dashboard._live.value
    assert "more models: %workbench events" in dashboard._events.value
    assert len(dashboard._controls.chooser.options) == 1000
    parts = (dashboard._live, dashboard._chart, dashboard._events)
    assert sum(len(part.value) for part in parts) < 100_000
    check_finding(dashboard)
    assert not dashboard._told
    assert is_live(server)


def check_finding(dashboard: Dashboard) -> None:
    """A part of a name leaves the models that have it, in the table and in the choice."""
    controls = dashboard._controls
    for part, names in (("M98", ["m98", *(f"m98{n}" for n in range(10))]), ("none", [])):
        controls.find.value = part
        dashboard.draw()
        assert sorted(controls.chooser.options) == names
        assert controls.chosen == (names[0] if names else "")
        assert all(f"{name}:1" in dashboard._live.value for name in names)
        assert dashboard._live.value.count("<tr") == (len(names) + 1 if names else 0)
    assert "no model with &#x27;none&#x27; in its name" in dashboard._live.value
    controls.find.value = "m"
    dashboard.draw()
    assert "970 more models" in dashboard._live.value
    controls.find.value = ""
    dashboard.draw()
    assert len(controls.chooser.options) == 1000


def test_finding_is_for_many(server: Workbench) -> None:
    """With few models there is nothing to look for."""
    dashboard = server.dashboard()
    dashboard.draw()
    assert dashboard._controls.find.layout.display == "none"


def test_a_name_that_is_a_script(server: Workbench) -> None:
    """A name of 200 characters with a script is text wherever it stands, also in notes."""
    server.register(echo, name=NASTY, inputs=DECLARED, outputs=DECLARED, memory="1KiB")
    server.infer(NASTY, np.zeros(1, np.float32))
    dashboard = server.dashboard()
    dashboard.draw()
    dashboard._act("unload", NASTY)
    dashboard._act("load", NASTY[:-1])
    dashboard._choose(NASTY)
    dashboard._send(NASTY, dashboard._controls.request.value)
    dashboard._executor.shutdown(wait=True)
    dashboard.draw()
    picture = dashboard._picture()["text/html"]
    values = [part.value for part in (dashboard._note, dashboard._answer, dashboard._live)]
    for html in (picture, *values):
        assert "<script" not in html
    assert "&lt;script&gt;" in picture
    assert not dashboard._told


def test_a_model_that_fails_every_second(tmp_path: Path) -> None:
    """Its row says that it is broken and why, and its failures take one line of the events."""
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "model.onnx").write_bytes(b"no model")
    with Workbench(tmp_path, device="cpu", port=0) as server:
        dashboard = server.dashboard()
        for _ in range(100):
            with pytest.raises(LoadFailed):
                server.load("bad")
            dashboard.draw()
        assert ">broken<" in dashboard._live.value
        assert dashboard._events.value.count("data-of=") == 1
        assert len(dashboard._events.value) < 20_000
        assert not dashboard._told
        assert is_live(server)


def test_gpus_whose_driver_begins_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU has a band and its figures; once its calls fail, that is said, and all goes on."""
    nvml = ScriptedNvml(UUIDS[:2])

    def place_on_gpus(settings: Settings) -> tuple[Placement, ...]:
        return place(settings, lambda: Gpus(nvml, {}), lambda _: None, dict)

    monkeypatch.setattr(server_core, "place", place_on_gpus)
    with Workbench(None, budget="64MiB", device="cuda", port=0) as server:
        server.register(echo, name="a", inputs=DECLARED, outputs=DECLARED, memory="1MiB")
        dashboard = server.dashboard()
        dashboard.draw()
        for number, figures in enumerate(("50% busy · 100 of 700 W · 40 °C", "51% busy")):
            assert f"cuda:{number}: GPU model {number}" in dashboard._live.value
            assert figures in dashboard._live.value
            assert f">cuda:{number}: budget for models 64.0 MiB" in dashboard._chart.value
        nvml.failures["by_uuid"] = pynvml.NVML_ERROR_GPU_IS_LOST
        dashboard.draw()
        assert dashboard._live.value.count("the driver does not report its memory in use") == 2
        assert "busy" not in dashboard._live.value
        assert not dashboard._told
        assert server.infer("a", [1.0]).tolist() == [1.0]
        assert is_live(server)
