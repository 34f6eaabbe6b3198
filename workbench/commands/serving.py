"""Helpers of the commands that serve: options, the end by Ctrl-C, events."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from workbench.annex import annexes
from workbench.api.workbench import Workbench
from workbench.commands.options import event_line
from workbench.host.logs import LogRing
from workbench.seconds import show_duration
from workbench.settings import declared, variable_name

_PORT = "8000"  # what clients of other servers try first
_EXIT_TIMEOUT = "25s"  # Kubernetes and SageMaker end a container 30 s after SIGTERM
_EVENT_WAIT_S = 0.5


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* an option for each setting."""
    for option in reversed(declared()):
        flag = f"--{option.name.replace('_', '-')}"
        choices = getattr(option.parse, "choices", None)
        decorate = click.option(
            flag,
            option.name,
            type=click.Choice(choices) if choices else str,
            help=option.help,
        )
        command = decorate(command)
    return command


def with_defaults(given: Mapping[str, str | None]) -> dict[str, str | None]:
    """The settings *given*, with the port and the time for a stop that commands have by default.

    Outside a notebook nobody waits for the end of a server, so running requests have longer.
    """
    platform = {name for each in annexes() for name, _, _ in each.variables(os.environ)}
    wanted = dict(given)
    for name, value in (("port", _PORT), ("exit_timeout", _EXIT_TIMEOUT)):
        is_set = wanted[name] is not None or os.environ.get(variable_name(name))
        if not is_set and name not in platform:
            wanted[name] = value
    return wanted


@contextmanager
def until_interrupted() -> Iterator[None]:
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


def follow(workbench: Workbench, head: str) -> None:
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
