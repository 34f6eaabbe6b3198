"""A multi-model endpoint as HTML."""

from workbench.contracts.sagemaker.endpoint.report import EndpointReport, TargetStatistics
from workbench.views.endpoint import endpoint_html


def test_an_endpoint_without_requests() -> None:
    """There is a line, and no table."""
    shown = endpoint_html(EndpointReport())
    assert "on this server: no requests yet" in shown
    assert "<table" not in shown


def test_targets() -> None:
    """Each target has its counts and seconds, and empty columns are left out."""
    told = TargetStatistics(hits=3, misses=1, loads=1, waiting_s=0.25, loading_s=0.2, nbytes=2**20)
    report = EndpointReport({"a<b>.tar.gz": "loaded"}, {"a<b>.tar.gz": told})
    shown = endpoint_html(report)
    assert "on this server: 1 model loaded, 75% of 4 requests found theirs loaded" in shown
    for cell in ("a&lt;b&gt;.tar.gz", "loaded", "250.0", "200.0", "1.0"):
        assert f">{cell}</td>" in shown, cell
    assert 'title="ModelLoadingWaitTime">waited, ms</th>' in shown
    assert "unloads" not in shown


def test_many_targets() -> None:
    """Those that were asked for most are shown, and how many are not."""
    statistics = {f"{n}.tar.gz": TargetStatistics(hits=n) for n in range(1, 1001)}
    shown = endpoint_html(EndpointReport({}, statistics))
    assert shown.count("<tr>") == 21
    assert "1000.tar.gz" in shown
    assert "980 more, asked for less often, are not shown" in shown
