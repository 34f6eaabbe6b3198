"""Which configuration is chosen, and what is written."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench import Workbench
from workbench.bench.client import Load
from workbench.bench.sweep import Point, Sweep, measured
from workbench.bench.tuning import config_text, tune, tune_shown
from workbench.bench.variant import Variant
from workbench.errors import UsageError
from workbench.model import Signature, TensorSpec

CONFIG = {
    "name": "m",
    "platform": "onnxruntime_onnx",
    "max_batch_size": 0,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
}


class Server:
    """A server that is twice as fast with batches, and 1.5 times with two instances."""

    url = "http://nowhere"

    def __init__(self, *, gain: float = 2.0) -> None:
        self.own: dict[str, Any] = dict(CONFIG)
        self.now: dict[str, Any] = self.own
        self.gain = gain
        self.loads: list[Any] = []

    def signature(self, _model: str) -> Signature:
        x = TensorSpec("x", "FP32", (-1, 4))
        return Signature("onnxruntime_onnx", {"x": x}, {"y": x})

    def config(self, _model: str) -> dict[str, Any]:
        return self.own

    def load(self, _model: str, config: Any = None) -> None:
        """A plain load keeps the configuration of the load before."""
        self.loads.append(config)
        self.now = config or self.now

    def speed(self) -> float:
        speed = 100.0
        if "dynamic_batching" in self.now:
            speed *= self.gain
        if self.now.get("instance_group", [{}])[0].get("count") == 2:
            speed *= 1.5
        return speed


class Target:
    """Loads of a ``Server``: from 8 clients on the latency is over 100 ms."""

    def __init__(self, server: Server, _model: str) -> None:
        self._server = server

    def measure(self, _inputs: object, clients: int, _rate: object, _pace: object) -> Load:
        speed = self._server.speed()
        served = min(clients, 4) / 4 * speed
        return Load(100, 0, served, 0.01, 0.02, 0.01 if clients < 8 else 0.2)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.bench.tuning.Wire", Target)
    monkeypatch.setattr("os.cpu_count", lambda: 4)


VECTOR = {"x": ("FP32", [-1])}
SWEEP = Sweep((1, 2, 4, 8, 16))


def test_the_fastest_within_the_limit_is_chosen(tmp_path: Path) -> None:
    """One change after another is kept if it serves more; the file has them, and the figures."""
    server: Any = Server()
    (tmp_path / "config.pbtxt").write_text('name: "m"\nparameters { key: "mine" }\n')
    found = tune(server, "m", 0.1, SWEEP, folder=tmp_path)
    assert found.chosen == Variant(batching=True, instances=2)
    assert (found.before.throughput, found.after.throughput) == (100.0, 300.0)
    assert max(point.clients for point in found.bench.points) == 8  # no more once it is too slow
    written = (tmp_path / "config.pbtxt").read_text()
    assert found.path == tmp_path / "config.pbtxt"
    assert "# m serves 300 elements a second within a p99 of 100 ms" in written
    assert "# as configured" in written
    for part in ("dynamic_batching", "max_batch_size: 64", "count: 2", 'key: "mine"'):
        assert part in written
    assert (tmp_path / "config.pbtxt.before").read_text().startswith('name: "m"')
    assert server.loads[-1] is None  # the server uses the file


def test_what_gives_little_is_noise(tmp_path: Path) -> None:
    """A gain of less than 5 % changes nothing, and nothing is written."""
    server: Any = Server(gain=1.04)
    server.speed = lambda: 100.0 * (1.04 if "dynamic_batching" in server.now else 1.0)
    found = tune(server, "m", 0.1, SWEEP, folder=tmp_path)
    assert found.chosen == Variant()
    assert "is best as it is configured" in repr(found)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_fast_enough(tmp_path: Path) -> None:
    """If no configuration keeps within the limit, that is said, and nothing is written."""
    server: Any = Server()
    found = tune(server, "m", 0.001, SWEEP, folder=tmp_path)
    assert found.chosen is None
    assert repr(found).startswith("no configuration of m keeps within a p99 of 1 ms")
    assert list(tmp_path.iterdir()) == []
    assert server.now == server.own


def test_only_a_variant_is_fast_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is too slow as it is configured has no figure from before."""

    class Slow(Target):
        def measure(self, *given: Any) -> Load:
            fast = "dynamic_batching" in self._server.now
            return replace(super().measure(*given), p99_s=0.01 if fast else 0.2)

    monkeypatch.setattr("workbench.bench.tuning.Wire", Slow)
    server: Any = Server()
    found = tune(server, "m", 0.1, SWEEP)
    assert found.before is None
    assert found.chosen == Variant(batching=True, instances=2)
    assert "(none before)" in found.sentence


def test_the_folder_of_the_model(tmp_path: Path) -> None:
    """The file is written in the first folder that has the model; the connection is closed."""
    for place in ("b/m", "c/m"):
        (tmp_path / place).mkdir(parents=True)

    class Opened(Server):
        is_open = True

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            self.is_open = False

    server: Any = Opened()
    found = tune_shown(server, "m", 0.1, SWEEP, [tmp_path / name for name in "abc"])
    assert found.path == tmp_path / "b" / "m" / "config.pbtxt"
    assert not server.is_open


def test_what_kept_within_the_limit_only_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the last measurement is slow for all, the sentence does not deny what the table shows."""

    def busy_at_the_end(sweep: Sweep, *given: Any) -> Iterator[Point]:
        for point in measured(sweep, *given):
            is_the_end = len(sweep.clients) == 1
            yield replace(point, load=replace(point.load, p99_s=0.2)) if is_the_end else point

    monkeypatch.setattr("workbench.bench.tuning.measured", busy_at_the_end)
    server: Any = Server()
    found = tune(server, "m", 0.1, SWEEP, folder=tmp_path)
    assert found.chosen is None
    assert found.unsteady is not None
    assert "m served" in found.sentence
    assert "but not when it was measured once more: nothing was changed" in found.sentence
    assert not list(tmp_path.iterdir())


def test_what_has_no_configuration(sample_models: Path) -> None:
    """An ensemble and a function are refused by bench too; by tune before it measures."""
    with Workbench(sample_models, device="cpu") as wb:
        wb.register(lambda x: x, name="f", inputs=VECTOR, outputs=VECTOR)
        refused = {
            "digits_reader": "'digits_reader' is an ensemble, .* tune its parts",
            "f": "^'f' is a function, which has no configuration to tune",
        }
        for model, told in refused.items():
            with pytest.raises(UsageError, match=told):
                wb.tune(model, p99="20ms")
        assert not len(wb.trace)
        for model, told in refused.items():
            with pytest.raises(UsageError, match=told):
                wb.bench(model, clients=1, instances=[1, 2], seconds="50ms")


def test_shapes_and_the_largest_batch_are_of_one_configuration(tmp_path: Path) -> None:
    """A file without a largest batch keeps its shapes, whatever the server tells meanwhile."""
    (tmp_path / "config.pbtxt").write_text('input { name: "x" data_type: TYPE_FP32 dims: [-1, 8] }')
    told = {"name": "m", "max_batch_size": 64, "input": [{"name": "x", "dims": [8]}]}
    written = config_text("", "", told, Variant(instances=2), tmp_path)
    assert "max_batch_size" not in written
    assert "dims: -1\n  dims: 8\n" in written


def test_without_a_folder_the_text_is_there() -> None:
    """A model that has no folder is tuned too; its file is for the user to write."""
    server: Any = Server()
    found = tune(server, "m", 0.1, SWEEP)
    assert found.path is None
    assert 'name: "m"' in found.config


def test_what_is_written_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sample_models: Path
) -> None:
    """A server loads the file that was written, and answers as before."""
    import shutil

    import workbench

    shutil.copytree(sample_models / "wine", tmp_path / "wine")
    with Workbench(tmp_path, device="cpu") as wb:
        server = workbench.connect(wb.url, token=wb.token)
        expected = wb.infer("wine", [[1.0] * 13])
        current: dict[str, Any] = {}
        load = server.load

        def loaded(model: str, config: Any = None) -> None:
            load(model, config)
            current["config"] = config or {}

        monkeypatch.setattr(server, "load", loaded)

        class Fast(Target):
            def measure(self, *_: Any) -> Load:
                fast = "dynamic_batching" in current.get("config", {})
                return Load(9, 0, 200.0 if fast else 100.0, 0.01, 0.01, 0.01)

        monkeypatch.setattr("workbench.bench.tuning.Wire", Fast)
        with server:
            found = tune(server, "wine", 1.0, Sweep((1,)), folder=tmp_path / "wine")
            assert found.chosen == Variant(batching=True)
            assert server.config("wine")["max_batch_size"] == 64
        assert wb.infer("wine", [[1.0] * 13]) == pytest.approx(expected)
