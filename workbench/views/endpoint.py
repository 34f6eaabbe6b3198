"""A multi-model endpoint as HTML: what became of the requests to each TargetModel."""

from __future__ import annotations

from workbench.contracts.sagemaker.endpoint.report import EndpointReport
from workbench.views.columns import Column, count_column, nbytes_column, said, seconds_column
from workbench.views.table import heads_html, rows_html, short_words
from workbench.views.text import models_count

_ROWS = 20


def endpoint_html(report: EndpointReport) -> str:
    """A line for all targets, and a row for each of those that were asked for most.

    The columns are named in words, with CloudWatch's name of the same figure as their title.
    """
    targets = sorted(report.statistics, key=lambda target: (-_requests(report, target), target))
    shown = targets[:_ROWS]
    told = [report.statistics[target] for target in shown]
    columns = [
        Column("target model", tuple(map(short_words, shown))),
        Column("state", tuple(report.states.get(target, "not loaded") for target in shown)),
        count_column("found loaded", [each.hits for each in told], "ModelCacheHit 1"),
        count_column("not loaded yet", [each.misses for each in told], "ModelCacheHit 0"),
        seconds_column("waited", [each.waiting_s for each in told], "ModelLoadingWaitTime"),
        seconds_column("unpacking", [each.downloading_s for each in told], "ModelDownloadingTime"),
        seconds_column("loading", [each.loading_s for each in told], "ModelLoadingTime"),
        count_column("unloads", [each.unloads for each in told]),
        seconds_column("unloading", [each.unloading_s for each in told], "ModelUnloadingTime"),
        nbytes_column("size", [each.nbytes for each in told]),
    ]
    more = len(targets) - len(shown)
    note = f"<small>{more} more, asked for less often, are not shown</small>" if more else ""
    columns = said(columns)
    rows = "".join(rows_html(columns))
    table = f'<table class="m">{heads_html(columns)}{rows}</table>' if shown else ""
    return f'<div class="wbd"><b>Multi-model endpoint</b> {_line(report)}{table}{note}</div>'


def _requests(report: EndpointReport, target: str) -> int:
    told = report.statistics[target]
    return told.hits + told.misses


def _line(report: EndpointReport) -> str:
    asked = sum(_requests(report, target) for target in report.statistics)
    if not asked:
        return "<small>on this server: no requests yet</small>"
    return (
        f"<small>on this server: {models_count(report.loaded_model_count)} loaded, "
        f"{report.hit_ratio:.0%} of {asked} requests found theirs loaded</small>"
    )
