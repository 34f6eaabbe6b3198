"""The commands that SageMaker's annex brings: ``endpoint`` and ``pack``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from workbench.annexes.sagemaker.report import report_of
from workbench.api.workbench import Workbench
from workbench.commands.options import path_option
from workbench.commands.serving import follow, setting_options, until_interrupted, with_defaults
from workbench.errors import UsageError
from workbench.host.logs import LogRing
from workbench.nbytes import show_nbytes
from workbench.spelling import no_folder


@click.command()
@click.argument("prefix", type=click.Path(path_type=Path))
@setting_options
def endpoint(prefix: Path, **settings: str | None) -> None:
    """Serve a SageMaker multi-model endpoint of the artifacts below PREFIX until Ctrl-C.

    Its models run in this process.
    """
    if wrong := no_folder(prefix):
        raise UsageError(f"the folder {str(prefix)!r} {wrong}")
    if settings["artifacts"] is not None:
        raise UsageError("PREFIX is the folder of the artifacts: leave out --artifacts")
    given = {**with_defaults(settings), "artifacts": str(prefix)}
    with until_interrupted(), Workbench(**given) as workbench:
        follow(workbench, f"multi-model endpoint of {prefix} at {workbench.link}")
        click.echo(report_of(workbench))


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@path_option("--out", default="model.tar.gz", show_default=True, help="file to write")
@click.option(
    "--function", show_default="the only one", help="the function to serve, of a Python file"
)
@path_option("--example", show_default="none", help="a request that the model answers, to put in")
@click.option("--check", is_flag=True, help="find out whether the artifact MODEL would deploy")
@click.option("--run-code", is_flag=True, help="with --check: run the code that it brings")
def pack(
    model: Path,
    *,
    out: Path,
    function: str | None,
    example: Path | None,
    check: bool,
    run_code: bool,
) -> None:
    """Pack MODEL for a SageMaker endpoint: an ONNX file, a model's folder, or a Python file.

    A check tells what it finds by the line, and ends with status 1 if MODEL would not deploy.
    """
    from workbench.annexes.sagemaker import checking, packing

    if run_code and not check:
        raise UsageError("--run-code goes with --check: packing runs no code")
    if check:
        findings, records = [], LogRing()
        records.attach()  # Python would print what code raises before what is wrong with that
        for finding in checking.check(model, run_code=run_code):
            findings.append(finding)
            click.echo(finding)
        records.detach()
        click.echo(records.text(), err=True, nl=bool(records.text()))
        sys.exit(any(finding.wrong for finding in findings))
    nbytes = packing.pack(model, out, function=function, example=example)
    click.echo(f"{out} ({show_nbytes(nbytes)}): workbench pack --check {out}")
