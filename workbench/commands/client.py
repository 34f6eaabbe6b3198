"""The commands that ask a server that runs: which do, models, inference, loads, events."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import click
import numpy as np

from workbench.asking.answers import Outputs
from workbench.commands.options import event_line, only_url, path_option, url_option
from workbench.errors import UsageError, WorkbenchError, line_of
from workbench.model import ModelState
from workbench.nbytes import show_nbytes
from workbench.running import RunningServer, find_token, running_servers, why_unlisted
from workbench.tensor import DATATYPES, Array, Tensor
from workbench.threads import ThreadPool
from workbench.views.text import aligned
from workbench.views.times import show_age

if TYPE_CHECKING:
    from workbench.asking.connection import Connection

_POLL_S = 0.5
_ANEW = "\r\x1b[K"  # to a terminal: the line begins again

_JSON_WORDS = ("true", "false", "null")
_NUMPYS = DATATYPES.keys() - {"BF16"}  # the datatypes of numpy

_ONE_OF = "give the inputs by one of --json, --npy and --image"

_TOKEN = click.option(
    "--token", show_default="that of your own server", help="what the server asks for"
)
_INPUTS = (
    click.option(
        "--json",
        "json_text",
        show_default="none",
        help="inputs as JSON, or a file of it, or - for stdin",
    ),
    path_option("--npy", show_default="none", help="inputs in an .npy or .npz file"),
    path_option("--image", show_default="none", help="an image file, as it is"),
)


def reads_inputs(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the *inputs* that its options tell; if not *required*, perhaps ``None``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def reading(
            *, json_text: str | None, npy: Path | None, image: Path | None, **given: Any
        ) -> None:
            inputs = _given_inputs(json_text, npy, image)
            if inputs is None and required:
                raise UsageError(_ONE_OF)
            command(inputs=inputs, **given)

        for option in reversed(_INPUTS):
            reading = option(reading)
        return reading

    return decorate


def on_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* a connection to the server that its options ``--url`` and ``--token`` name."""

    @url_option
    @_TOKEN
    @wraps(command)
    def connected(*, url: str | None, token: str | None, **given: Any) -> None:
        from workbench.asking.connection import connect  # its client of HTTP takes its time

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
    from workbench.asking.connection import connect  # its client of HTTP takes its time

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
    """Load MODEL now; a terminal shows how far that is."""
    _load(wb, model)
    click.echo(f"loaded {model}")


def _load(wb: Connection, model: str) -> None:
    if not sys.stderr.isatty():
        wb.load(model)
        return
    loading = ThreadPool(1, "load").submit(wb.load, model)
    while wait((loading,), _POLL_S).not_done:
        step = f"loading {model}: {wb.step_of_load(model)}".removesuffix(": ")
        click.echo(f"{_ANEW}{step}", nl=False, err=True)
    click.echo(_ANEW, nl=False, err=True)
    loading.result()


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
    from workbench.asking.connection import address_of

    url = address_of(at or url or only_url())
    found = find_token(url)
    if not found:
        raise UsageError(f"no server of yours at {url} asks for a token")
    click.echo(found)


@click.command(hidden=True)
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


def _given_inputs(json_text: str | None, npy: Path | None, image: Path | None) -> Any:
    """The inputs that the options give; ``None`` without any. Raises ``UsageError``."""
    given = [each for each in (json_text, npy, image) if each is not None]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(_ONE_OF)
    try:
        if json_text is not None:
            return _from_json(_text_of(json_text))
        if image is not None:
            return image.read_bytes()
        return _from_npy(npy)
    except OSError as error:
        raise UsageError(f"{given[0]}: {error.strerror}") from None
    except (ValueError, TypeError, EOFError, BadZipFile) as error:
        told = line_of(error)
        if "pickle" in told:  # numpy takes whatever has not its magic number for one
            told = "it is no .npy or .npz file of numbers or texts"
        raise UsageError(f"{given[0]} cannot be read: {told}") from None


def _text_of(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.lstrip()[:1] in ("[", "{", '"') or _is_number(given):
        return given
    path = Path(given)
    if path.suffix or path.is_file():
        return path.read_text("utf-8-sig")
    if given.strip() not in _JSON_WORDS:
        raise UsageError(f"{given!r} is neither JSON nor a file")
    return given


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_json(text: str) -> Any:
    value = json.loads(text)
    inputs = value.get("inputs") if isinstance(value, dict) else None
    if not isinstance(inputs, list) or not all(_is_tensor(each) for each in inputs):
        return value
    return {each["name"]: _array(each).reshape(each["shape"]) for each in inputs}


def _array(tensor: Mapping[str, Any]) -> Array:
    """The data of V2's *tensor*, of its datatype; of BF16, numbers."""
    datatype = tensor.get("datatype")
    return Tensor.of(tensor["data"], datatype if datatype in _NUMPYS else None).array


def _is_tensor(entry: object) -> bool:
    return isinstance(entry, dict) and {"name", "shape", "data"} <= entry.keys()


def _from_npy(path: Path | None) -> Any:
    assert path is not None
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}


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
