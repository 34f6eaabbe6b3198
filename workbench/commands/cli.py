"""The command line: the same server outside a notebook."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.api.workbench import Workbench
from workbench.commands.client import (
    COMMANDS,
    event_line,
    on_server,
    only_url,
    path_option,
    reads_inputs,
    url_option,
)
from workbench.contracts.sagemaker.platform import BIND_TO_PORT, on_sagemaker, single_artifacts
from workbench.errors import UsageError, WorkbenchError, refused_in_one_line
from workbench.host.logs import LogRing
from workbench.nbytes import parse_nbytes, show_nbytes
from workbench.removed import no_more_option, no_more_verb
from workbench.running import find_token, running_servers
from workbench.seconds import parse_seconds, show_duration
from workbench.settings import declared, variable_name
from workbench.spelling import no_folder
from workbench.version import __version__
from workbench.views.text import repository_faults

if TYPE_CHECKING:
    from workbench.asking.connection import Connection
    from workbench.bench.point import Point

_PORT = "8000"  # what clients of other servers try first
_EXIT_TIMEOUT = "25s"  # Kubernetes and SageMaker end a container 30 s after SIGTERM
_INTERRUPTED = 128 + signal.SIGINT  # as shells tell it
_EVENT_WAIT_S = 0.5
_LOOK_S = 0.1
_WIDEST = 120  # characters of a line of help, in a terminal that is as wide


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(declared()):
        flag = f"--{option.name.replace('_', '-')}"
        choices = getattr(option.metadata["parse"], "choices", None)
        decorate = click.option(
            flag,
            option.name,
            type=click.Choice(choices) if choices else str,
            help=option.metadata["help"],
        )
        command = decorate(command)
    return command


_MAGICS = ("start", "restart")  # verbs of notebooks only, which the shell has as "serve"


class _Commands(click.Group):
    """Ends a command with an error's one line, and says warnings in one line each."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _in_one_line(self):
            return super().make_context(*args, **extra)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] in _MAGICS:
            ctx.fail(f"%workbench {args[0]} is for notebooks; in a shell: workbench serve FOLDER.")
        if args[0] not in self.commands and (gone := no_more_verb(f"command {args[0]}", args[0])):
            raise UsageError(gone)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _in_one_line(self, ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt:  # click would say "Aborted!", with the status of a failure
            click.echo("", err=True)
            sys.exit(_INTERRUPTED)

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                return super().main(*args, **extra)
        except (WorkbenchError, OSError) as error:  # click itself handles a closed pipe
            told = str(error)
            if isinstance(error, OSError) and error.strerror:  # without its number
                told = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            click.echo(f"workbench: {told}", err=True)
            try:
                sys.stdout.flush()
            except OSError:  # Python would try it again at its end, and say so in lines of its own
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(2)


@contextmanager
def _in_one_line(group: click.Group, ctx: click.Context | None = None) -> Iterator[None]:
    """Raises click's error about arguments, which it would tell in four lines, as one of ours.

    *ctx* is that of *group*, while one of its commands is read or runs.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        of = error.ctx or ctx
        path, told = of.command_path if of else "workbench", error.format_message()
        if isinstance(error, click.NoSuchOption):
            verb = (of.info_name if of else None) or ""
            told = no_more_option(verb, error.option_name) or told
        if isinstance(error, click.BadOptionUsage) and ctx and ctx.invoked_subcommand:
            command = group.commands[ctx.invoked_subcommand]  # which click does not say here
            path = f"{ctx.command_path} {command.name}"
            found = (each for each in command.params if error.option_name in each.opts)
            if wanted := getattr(next(found, None), "help", ""):
                told = f"{told.rstrip('.')}: {wanted}."
        raise UsageError(f"{told}{'' if told[-1] in '.?)' else '.'} See {path} --help") from None


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"workbench: {message}", err=True)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST},
)
@click.version_option(__version__, prog_name="workbench")
def main() -> None:
    """Serve models from local memory, under a budget."""


@main.command()
@click.argument("repository", type=click.Path(path_type=Path), nargs=-1)
@_setting_options
def serve(repository: tuple[Path, ...], **settings: str | None) -> None:
    """Serve the models of each folder REPOSITORY until Ctrl-C, at port 8000 unless told another.

    REPOSITORY may be left out where ModelMesh or SageMaker says which models to load.
    """
    on_platform = on_sagemaker(os.environ)
    modelmesh = settings["modelmesh"] or os.environ.get(variable_name("modelmesh"))
    if not repository and not (modelmesh or on_platform):
        raise click.UsageError("Missing argument 'REPOSITORY...'.")
    named = any(os.environ.get(each) for each in (variable_name("port"), BIND_TO_PORT))
    if settings["port"] is None and not named:
        settings["port"] = _PORT
    _let_requests_finish(settings)
    with _until_interrupted():
        if on_platform and not repository:
            single = single_artifacts(os.environ)
            settings["artifacts"] = settings["artifacts"] or single
        if os.environ.get("MODEL_INIT_MODE") == "async":  # KServe's, where a container brings them
            _wait_for(repository)
        with Workbench(repository, **settings) as workbench:
            folders = workbench.settings.repository
            faults = repository_faults(workbench.models, folders, "workbench models")
            _follow(workbench, "\n".join(filter(None, (repr(workbench), faults))))


@main.command()
@click.argument("prefix", type=click.Path(path_type=Path))
@_setting_options
def endpoint(prefix: Path, **settings: str | None) -> None:
    """Serve a SageMaker multi-model endpoint of the artifacts below PREFIX until Ctrl-C.

    Its models run in this process.
    """
    if wrong := no_folder(prefix):
        raise UsageError(f"the folder {str(prefix)!r} {wrong}")
    if settings["artifacts"] is not None:
        raise UsageError("PREFIX is the folder of the artifacts: leave out --artifacts")
    if settings["port"] is None and not os.environ.get(variable_name("port")):
        settings["port"] = _PORT
    _let_requests_finish(settings)
    with _until_interrupted(), Workbench(**{**settings, "artifacts": str(prefix)}) as workbench:
        _follow(workbench, f"multi-model endpoint of {prefix} at {workbench.link}")
        click.echo(workbench.endpoint)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """A context that Ctrl-C and SIGTERM end; the end is said. Warnings and errors are printed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):  # what models print is seen at once, in a pipe too
        sys.stdout.reconfigure(line_buffering=True)
    LogRing.printed_to = sys.stderr
    try:
        yield
    except KeyboardInterrupt:  # before it served
        click.echo("")
    finally:
        LogRing.printed_to = None
    click.echo("stopped")


def _wait_for(folders: tuple[Path, ...]) -> None:
    """Wait until all *folders* are there, and say which is not."""
    for folder in folders:
        if not folder.is_dir():
            click.echo(f"waiting for the folder {folder}")
        while not folder.is_dir():
            time.sleep(_LOOK_S)


def _follow(workbench: Workbench, head: str) -> None:
    """Print *head*, then events as they come, until Ctrl-C or SIGTERM, and those before it."""
    click.echo(head)
    click.echo("Ctrl-C stops it")
    seen = 0

    def print_events(wait_s: float) -> None:
        nonlocal seen
        for entry in workbench.wait_for_events(seen, wait_s):
            click.echo(event_line(entry))
            seen = entry.number

    try:
        while True:
            print_events(_EVENT_WAIT_S)
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: workbench.stop(timeout_s=0.0))
        click.echo("")
        print_events(0.0)
    models = workbench.snapshot().models if workbench.is_running else ()
    if any(model.leases or model.pending for model in models):
        exit_s = show_duration(workbench.settings.exit_timeout)
        click.echo(f"running requests have {exit_s} to finish; Ctrl-C ends them now")


def _let_requests_finish(settings: dict[str, str | None]) -> None:
    """Outside a notebook nobody waits for the end of a server, so running requests have longer."""
    if settings["exit_timeout"] is None and not os.environ.get(variable_name("exit_timeout")):
        settings["exit_timeout"] = _EXIT_TIMEOUT


@main.command()
@click.argument("at", metavar="[URL]", required=False)
@url_option
def token(at: str | None, url: str | None) -> None:
    """Print the token of your server at URL (default: the only one on this machine)."""
    from workbench.asking.connection import address_of

    url = address_of(at or url or only_url())
    found = find_token(url)
    if not found:
        raise UsageError(f"no server of yours at {url} asks for a token")
    click.echo(found)


@main.command(hidden=True)
@url_option
def stop(url: str | None) -> None:
    """Tell how a server is stopped, for those who look for a command."""
    from workbench.asking.connection import address_of

    url = address_of(url or only_url())
    processes = [f", or kill {each.pid}" for each in running_servers() if each.url == url]
    raise UsageError(
        f"no command stops {url}: press Ctrl-C where it runs, or %workbench stop in its "
        f"notebook{''.join(processes)}"
    )


def _elsewhere(verb: str) -> click.Command:
    """Tells where *verb* is, which the notebook and Python have, and the command line has not."""
    where = (
        f"{verb} is for notebooks and Python: %workbench {verb}, or wb.{verb}, in the process of "
        "the server"
    )

    @click.command(verb, hidden=True, help=where, context_settings={"ignore_unknown_options": True})
    @click.argument("_given", nargs=-1, type=click.UNPROCESSED)
    def told(_given: tuple[str, ...]) -> None:
        raise UsageError(where)

    return told


for _verb in ("budget", "pin", "plan", "save", "unpin"):
    main.add_command(_elsewhere(_verb))


@main.command()
@path_option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    show_default="sample_models; heavy_models for heavy ones",
    help="folder to write to",
)
@click.option("--count", type=int, help="write heavy models instead: how many  [default: 8]")
@click.option("--size", help="write heavy models instead: how large each is  [default: 100MiB]")
def samples(out: Path | None, count: int | None, size: str | None) -> None:
    """Write the sample models, or, with --count or --size, heavy models of random weights.

    The sample models are small ones for digits, wines and patients. The heavy ones show eviction.
    """
    from workbench.commands.bundled import copy_bundled
    from workbench.samples import write_models

    if count is None and size is None:
        out = out or Path("sample_models")
        copy_bundled("sample_models", out)
    else:
        out = out or Path("heavy_models")
        try:
            with refused_in_one_line(out):
                write_models(out, 8 if count is None else count, parse_nbytes(size or "100MiB"))
        except ValueError as error:
            raise UsageError(str(error)) from None
    click.echo(f"{out} is written: workbench serve {out}, or Workbench({str(out)!r}) in Python")


@main.command()
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
    from workbench import artifacts
    from workbench.contracts.sagemaker import checking

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
    nbytes = artifacts.pack(model, out, function=function, example=example)
    click.echo(f"{out} ({show_nbytes(nbytes)}): workbench pack --check {out}")


def _numbers(_: click.Context, option: click.Parameter, text: str) -> list[int]:
    from workbench.bench.benchmark import several

    return several(option.name or "", text)


@main.command()
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


@main.command()
def doctor() -> None:
    """Find out what is wrong with this installation, and how to mend it."""
    from workbench.commands.doctor import examine

    findings = examine()
    click.echo(findings)
    sys.exit(bool(findings.wrong))


@main.command()
@click.argument("samples", type=click.Path(path_type=Path), required=False)
@path_option(
    "--out", default="build/demo", show_default=True, help="folder for its models and picture"
)
def demo(samples: Path | None, out: Path) -> None:
    """Show it all on real data: more models than the budget holds, and which are evicted when.

    SAMPLES is a folder of models; by default it is the one that comes with the workbench.
    """
    from workbench.commands.bundled import bundled
    from workbench.commands.demo import run

    run(samples or bundled("sample_models"), out)


@main.command(context_settings={"ignore_unknown_options": True})
@path_option(
    "--out",
    default="workbench-lab",
    show_default=True,
    help="folder for a copy of the notebooks",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def lab(out: Path, options: tuple[str, ...]) -> None:
    """Open JupyterLab on a copy of the notebooks; OPTIONS are JupyterLab's, such as --no-browser.

    A second time it opens the same copy, with what you changed.
    """
    from workbench.commands.bundled import open_lab

    open_lab(out, options)


for _command in COMMANDS:
    main.add_command(_command)
