"""The command ``workbench bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from workbench.commands.client import on_server, reads_inputs
from workbench.seconds import parse_seconds

if TYPE_CHECKING:
    from workbench.asking.connection import Connection
    from workbench.bench.point import Point


def _numbers(_: click.Context, option: click.Parameter, text: str) -> list[int]:
    from workbench.bench.benchmark import several

    return several(option.name or "", text)


@click.command()
@click.argument("model")
@reads_inputs(required=False)
@click.option(
    "--clients",
    default="1,2,4,8,16,32,64",
    show_default=True,
    callback=_numbers,
    help="how many ask at a time",
)
@click.option(
    "--batches",
    default="",
    show_default="those of the inputs",
    callback=_numbers,
    help="elements of a request, such as 1,8",
)
@click.option(
    "--seconds",
    default="1.5",
    show_default=True,
    callback=lambda _, option, text: parse_seconds(text, option.name),
    help="how long each load is measured",
)
@on_server
def bench(connection: Connection, model: str, **given: Any) -> None:
    """Measure how fast MODEL is, at any server of the V2 protocol.

    Without inputs, an example is made of what the server tells of the model. Each measurement is
    printed as it ends, then a table of all.
    """
    from workbench.bench import benchmark, report

    def told(point: Point, _share: float) -> None:
        click.echo("  ".join(report.row(point)).rstrip(), err=True)

    click.echo(benchmark.bench(connection, model, told=told, **given))
