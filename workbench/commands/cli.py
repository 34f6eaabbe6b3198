"""The command line: the same server outside a notebook."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from workbench.annex import annexes
from workbench.api.workbench import Workbench
from workbench.commands.options import path_option
from workbench.commands.serving import follow, setting_options, until_interrupted, with_defaults
from workbench.errors import UsageError, WorkbenchError, refused_in_one_line
from workbench.nbytes import parse_nbytes
from workbench.removed import no_more_option, no_more_verb
from workbench.version import __version__
from workbench.views.text import repository_faults

_INTERRUPTED = 128 + signal.SIGINT  # as shells tell it
_LOOK_S = 0.1
_WIDEST = 120  # characters of a line of help, in a terminal that is as wide


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
@setting_options
def serve(repository: tuple[Path, ...], **settings: str | None) -> None:
    """Serve the models of each folder REPOSITORY until Ctrl-C, at port 8000 unless told another.

    REPOSITORY may be left out where ModelMesh or SageMaker says which models to load.
    """
    given: Mapping[str, Any] = with_defaults(settings)
    if not repository:
        asked = (each.serves(given, os.environ) for each in annexes() if each.serves is not None)
        found = next((each for each in asked if each is not None), None)
        if found is None:
            raise click.UsageError("Missing argument 'REPOSITORY...'.")
        given = found
    with until_interrupted():
        if os.environ.get("MODEL_INIT_MODE") == "async":  # KServe's, where a container brings them
            _wait_for(repository)
        with Workbench(repository, **given) as workbench:
            folders = workbench.settings.repository
            faults = repository_faults(workbench.models, folders, "workbench models")
            follow(workbench, "\n".join(filter(None, (repr(workbench), faults))))


def _wait_for(folders: tuple[Path, ...]) -> None:
    """Wait until all *folders* are there, and say which is not."""
    for folder in folders:
        if not folder.is_dir():
            click.echo(f"waiting for the folder {folder}")
        while not folder.is_dir():
            time.sleep(_LOOK_S)


def _elsewhere(verb: str) -> click.Command:
    """Tells where *verb* is, which the notebook and Python have, and the command line has not."""
    where = (
        f"{verb} is for notebooks and Python: %workbench {verb}, or wb.{verb}, in the process of "
        "the server"
    )

    @click.command(verb, hidden=True, help=where, context_settings={"ignore_unknown_options": True})
    @click.argument("_given", nargs=-1, type=click.UNPROCESSED, metavar="")
    def told(_given: tuple[str, ...]) -> None:
        raise UsageError(where)

    return told


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


for _annex in annexes():
    for _command in _annex.commands():
        main.add_command(_command)
_of_notebooks = (
    "budget",
    "pin",
    "save",
    "unpin",
    *(verb for each in annexes() for verb in each.magics),
)
for _verb in _of_notebooks:
    if _verb not in main.commands:
        main.add_command(_elsewhere(_verb))
