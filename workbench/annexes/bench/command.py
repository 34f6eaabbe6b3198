"""The command ``workbench bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from workbench.commands.inputs import reads_inputs
from workbench.commands.options import only_url, token_option, url_option

if TYPE_CHECKING:
    from workbench.annexes.bench.client import Point


@click.command()
@click.argument("model")
@reads_inputs(required=False)
@click.option(
    "--clients", default="1,2,4,8,16,32,64", show_default=True, help="how many ask at a time"
)
@click.option(
    "--batches",
    default="",
    show_default="those of the inputs",
    help="elements of a request, such as 1,8",
)
@click.option("--seconds", default="1.5", show_default=True, help="how long each load is measured")
@url_option
@token_option
def bench(
    *,
    model: str,
    inputs: object,
    clients: str,
    batches: str,
    seconds: str,
    url: str | None,
    token: str | None,
) -> None:
    """Measure how fast MODEL is, at any server of the V2 protocol.

    Without inputs, an example is made of what the server tells of the model. Each measurement is
    printed as it ends, then a table of all.
    """
    from workbench.annexes.bench import benchmark, report
    from workbench.annexes.bench.target import BenchServer

    def told(point: Point, _share: float) -> None:
        click.echo("  ".join(report.row(point)).rstrip(), err=True)

    loads = benchmark.LoadLevels.of(clients, batches, seconds)
    target = BenchServer(url or only_url(), token)
    click.echo(benchmark.bench(target, model, inputs, loads, told=told))
