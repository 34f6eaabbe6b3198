"""The commands that ask a server that runs: which do, models, inference, loads, events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from workbench.client.answers import Outputs
from workbench.client.elsewhere import address_of
from workbench.commands.inputs import reads_inputs
from workbench.commands.options import event_line, only_url, token_option, url_option
from workbench.errors import UsageError, WorkbenchError
from workbench.model import ModelState
from workbench.nbytes import show_nbytes
from workbench.running import RunningServer, find_token, running_servers, why_unlisted
from workbench.views.text import aligned
from workbench.views.times import show_age

if TYPE_CHECKING:
    from workbench.annexes.connect.connection import Connection

_POLL_S = 0.5


def on_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* a connection to the server that its options ``--url`` and ``--token`` name."""

    @url_option
    @token_option
    @wraps(command)
    def connected(*, url: str | None, token: str | None, **given: Any) -> None:
        from workbench.annexes.connect.connection import connect  # httpx takes its time

        with connect(url or only_url(), token=token) as wb:
            command(wb, **given)

    return connected


@click.command()
def ps() -> None:
    """List your servers that run on this machine."""
    servers = running_servers()
    if not servers:
        click.echo(why_unlisted() or "no server of yours runs on this machine")
        return
    heads = ("url", "process", "since", "models ready", "memory")
    for line in aligned([heads, *map(_server_row, servers)], right={1, 2, 3, 4}):
        click.echo(line)


def _server_row(server: RunningServer) -> Sequence[str]:
    from workbench.annexes.connect.connection import connect  # httpx takes its time

    age = show_age(max(0.0, time.time() - server.started_s))
    try:
        with connect(server.url, token=server.token, timeout_s=5.0) as wb:
            models = wb.models
    except WorkbenchError as error:
        return server.url, str(server.pid), age, "?", f"no answer: {error}"
    ready = sum(model.state is ModelState.READY for model in models)
    held = show_nbytes(sum(model.nbytes for model in models))
    return server.url, str(server.pid), age, f"{ready} of {len(models)}", held


@click.command()
@on_server
def models(wb: Connection) -> None:
    """List the models of a server, with their state, memory, inputs and outputs."""
    click.echo(repr(wb.models))


@click.command()
@click.argument("model")
@reads_inputs(required=True)
@click.option("--output", show_default="all", help="which output")
@on_server
def infer(wb: Connection, model: str, *, output: str | None, inputs: Any) -> None:
    """Ask MODEL, and print its answer as JSON.

    JSON is one value for a model of one input, an object by the names of the inputs, or a request
    of the V2 protocol.
    """
    click.echo(json.dumps(_plain(wb.infer(model, inputs, output=output))))


@click.command()
@click.argument("model")
@on_server
def load(wb: Connection, model: str) -> None:
    """Load MODEL now."""
    wb.load(model)
    click.echo(f"loaded {model}")


@click.command()
@click.argument("model")
@on_server
def unload(wb: Connection, model: str) -> None:
    """Unload MODEL."""
    wb.unload(model)
    click.echo(f"unloaded {model}")


@click.command()
@click.option("--follow", is_flag=True, help="go on with those that come, until Ctrl-C")
@on_server
def events(wb: Connection, *, follow: bool) -> None:
    """Print what happened at a server, oldest first."""
    seen = 0
    try:
        while True:
            for entry in wb.events_after(seen):
                seen = entry.number
                click.echo(event_line(entry))
            if not follow:
                return
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        click.echo("")


@click.command()
@click.argument("at", metavar="[URL]", required=False)
@url_option
def token(at: str | None, url: str | None) -> None:
    """Print the token of your server at URL (default: the only one on this machine)."""
    url = address_of(at or url or only_url())
    found = find_token(url)
    if not found:
        raise UsageError(f"no server of yours at {url} asks for a token")
    click.echo(found)


@click.command(hidden=True)
@url_option
def stop(url: str | None) -> None:
    """Tell how a server is stopped, for those who look for a command."""
    url = address_of(url or only_url())
    processes = [f", or kill {each.pid}" for each in running_servers() if each.url == url]
    raise UsageError(
        f"no command stops {url}: press Ctrl-C where it runs, or %workbench stop in its "
        f"notebook{''.join(processes)}"
    )


def _plain(answer: Any) -> Any:
    """The answer as JSON has it; bytes that are no text as Latin-1."""
    if isinstance(answer, Outputs):
        return {name: _plain(array) for name, array in answer.items()}
    return _without_bytes(answer.tolist())


def _without_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


COMMANDS = (ps, models, infer, load, unload, events, token, stop)
