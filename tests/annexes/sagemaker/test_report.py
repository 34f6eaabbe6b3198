"""What an endpoint did, as people see it."""

import json
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from IPython.core.error import UsageError

from workbench import Workbench
from workbench.annexes.sagemaker.report import EndpointReport, TargetStatistics
from workbench.notebook import magics


def test_an_endpoint_without_requests() -> None:
    """There is a line, and no table."""
    shown = EndpointReport().html
    assert "no requests yet" in shown
    assert "<table" not in shown


def test_targets() -> None:
    """Each target has its counts and seconds, with CloudWatch's names of them."""
    told = TargetStatistics(hits=3, misses=1, loads=1, waiting_s=0.25, loading_s=0.2, nbytes=2**20)
    report = EndpointReport({"a<b>.tar.gz": "loaded"}, {"a<b>.tar.gz": told})
    shown = report.html
    assert "1 model loaded, 75% hits" in shown
    for cell in ("a&lt;b&gt;.tar.gz", "loaded", "250.0 ms", "200.0 ms", "1.0 MiB"):
        assert f">{cell}</td>" in shown, cell
    assert 'title="ModelLoadingWaitTime">waited</th>' in shown


def test_many_targets() -> None:
    """Those that were asked for most are shown, and how many are not."""
    statistics = {f"{n}.tar.gz": TargetStatistics(hits=n) for n in range(1, 1001)}
    shown = EndpointReport({}, statistics).html
    assert shown.count("<tr>") == 21
    assert "1000.tar.gz" in shown
    assert "980 more, asked for less often, are not shown" in shown


def test_a_multi_model_endpoint_is_shown(sample_models: Path) -> None:
    """What became of each TargetModel stands below the models, live and in the picture."""
    with Workbench(artifacts=sample_models, device="cpu") as server:
        dashboard = server.dashboard()
        headers = {"x-amzn-sagemaker-target-model": "wine"}
        body = json.dumps([[0.0] * 13])
        for _ in range(2):
            url = f"{server.url}/endpoints/any/invocations"
            assert httpx.post(url, content=body, headers=headers).status_code == 200
        dashboard.draw()
        for shown in (dashboard._panels.value, dashboard._picture()["text/html"]):
            assert "1 model loaded, 50% hits" in shown
            assert ">wine</td>" in shown
        dashboard.close()


def test_the_magic(sample_models: Path) -> None:
    """Endpoint tells what the multi-model endpoint did; without one, how to have it."""

    def told(server: Workbench) -> str:
        shell = SimpleNamespace(_workbench=server, user_ns={})
        return repr(magics.run(magics.Verbs(shell), "endpoint"))

    with Workbench(device="cpu") as server, pytest.raises(UsageError, match="artifacts=FOLDER"):
        told(server)
    with Workbench(artifacts=sample_models, device="cpu") as server:
        assert "no requests yet" in told(server)
        headers = {"x-amzn-sagemaker-target-model": "wine"}
        url = f"{server.url}/endpoints/e/invocations"
        body = {"instances": [[0.0] * 13]}
        assert httpx.post(url, json=body, headers=headers).status_code == 200
        assert "LoadedModelCount 1" in told(server)
