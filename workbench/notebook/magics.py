"""``%workbench``: the server from a notebook cell.

The running server is kept on the IPython shell, where a reloaded extension
finds it again. A mistake is one line, without a traceback.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import currentframe
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench.api.workbench import Workbench
from workbench.errors import WorkbenchError, place_in_cell
from workbench.memory.eviction import POLICIES
from workbench.nbytes import show_nbytes
from workbench.notebook import completion
from workbench.notebook.cell import value_of
from workbench.seconds import parse_seconds, show_duration
from workbench.settings import Settings, declared, difference, kept
from workbench.spelling import meant
from workbench.views.text import addresses, models_count
from workbench.views.times import show_age

_ATTRIBUTE = "_workbench"  # on the shell
_RECENT_EVENTS = 30

_HELP = """A model server inside this kernel.

    %workbench                            the state of the running server
    %workbench start [FOLDER] [OPTIONS]   serve the models of FOLDER; again: the same server
    %workbench restart [FOLDER] [OPTIONS] stop, and start with changed options; the rest stay
    %workbench stop                       stop, and give all memory back
    %workbench load MODEL [VERSION]       load a model now
    %workbench unload MODEL [VERSION]     unload it
    %workbench pin MODEL | unpin MODEL    never evict it, or allow it again
    %workbench save MODEL FOLDER          save it as a folder for Triton, KServe and this server, or
                                          as an archive for SageMaker: save MODEL model.tar.gz
    %%workbench infer MODEL [OPTIONS]     run a model; the rest of the cell is Python that ends
                                          with the input: --version 1 --output y --timeout 5s
                                          --raw
    %workbench budget [AMOUNT]            the memory that models may take, or change it: 64MiB
    %workbench evict [POLICY]             which model is evicted first: lru, lfu, largest, cost,
                                          or never
    %workbench keep-alive [TIME]          how long an idle model stays loaded: 5min, or off
    %workbench dashboard                  live memory, models, events and their controls
    %workbench snapshot                   a picture of the dashboard, which the saved notebook
                                          keeps: in place of the live one, or here
    %workbench plan [FILE] [OPTIONS]      how much memory the last requests need, or those of a
                                          FILE (a saved trace, or an access log as CSV):
                                          --warm 99%, --p99 200ms, --evict cost,lfu
    %workbench bench MODEL [OPTIONS]      how fast it is: --clients 1,8 --rates 50 --batches 1,8
                                          --batching off,on --instances 1,2 --threads 1,2
                                          --seconds 0.5 --wire http|python
    %workbench tune MODEL --p99 20ms      write the configuration that serves most within a p99
    %workbench samples [FOLDER]           write the sample models (sample_models)
    %workbench doctor                     what is wrong with this installation, and its cure
    %workbench models                     every model, loaded or not
    %workbench events [N]                 the last N events (30)
    %workbench endpoint                   what the multi-model endpoint did
    %workbench logs                       what the server's threads logged

Options of start and restart:
"""


class _ArgumentParser(argparse.ArgumentParser):
    """Raises an error for a mistake, and does not end the process."""

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2]
        option = unknown.partition(" ")[0].partition("=")[0]
        near = get_close_matches(option, self._option_string_actions, 1)
        hint = f"did you mean {near[0]}?" if near else "see %workbench?"
        raise IPythonUsageError(f"%{self.prog}: {message}; {hint}")


def _given(verb: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What *arguments* give, by name, without what they leave out."""
    marks = "%" if verb == "infer" else ""  # a cell magic has two
    parser = _ArgumentParser(
        prog=f"{marks}workbench {verb}",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for name, about in _ARGUMENTS[verb].items():
        parser.add_argument(*sorted({name, name[:2] + name[2:].replace("-", "_")}), **about)
    return vars(parser.parse_args(arguments))


def _help() -> str:
    lines = [
        f"    --{option.name.replace('_', '-'):<12} {option.metadata['help']}"
        for option in declared()
    ]
    return _HELP + "\n".join(lines) + "\n"


class Verbs:
    """The verbs of ``%workbench``, for the server of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    @property
    def _own(self) -> Workbench | None:
        """The server that ``%workbench start`` started, running or stopped."""
        return getattr(self._shell, _ATTRIBUTE, None)

    @property
    def server(self) -> Workbench | None:
        """The server of ``%workbench start``, or the only running one that a variable holds."""
        own = self._own
        if own is not None and own.is_running:
            return own
        held = [
            each
            for name, each in self._shell.user_ns.items()
            if isinstance(each, Workbench) and each.is_running and not name.startswith("_")
        ]
        return held[0] if len(set(map(id, held))) == 1 else own

    def running(self) -> Workbench:
        """The running server; a usage error without one."""
        server = self.server
        if server is None or not server.is_running:
            raise IPythonUsageError("no server is running: %workbench start FOLDER")
        return server

    def status(self, arguments: Sequence[str]) -> Workbench | None:
        """The state of the running server; starts nothing."""
        _expect(arguments, 0, "status")
        if self.server is None or not self.server.is_running:
            print("no server is running: %workbench start FOLDER")  # noqa: T201
            return None
        return self.server

    def start(self, arguments: Sequence[str]) -> Workbench:
        """Start a server, or return the one that runs with the same options."""
        given = _given("start", arguments)
        server = self._own
        if server is None:
            return self._launch(given)
        wanted = server.settings.changed(**given)
        if not server.is_running:
            same = wanted == server.settings
            _told(server.start() if same else server.restart(**given))
            if before := kept(wanted, Settings.of(**given)):
                print(f"with the options that it had before: {before}")  # noqa: T201
            return server
        if wanted == server.settings:
            places = addresses(server.link, server.grpc_urls)
            print(f"already running at {places} for {show_age(server.uptime_s)}")  # noqa: T201
            return server
        raise IPythonUsageError(
            f"a server runs with other options ({difference(server.settings, wanted)}): "
            "%workbench restart with the new ones, or stop it"
        )

    def restart(self, arguments: Sequence[str]) -> Workbench:
        """Stop and start; options that are not given stay as they were."""
        given = _given("restart", arguments)
        server = self._own
        return self._launch(given) if server is None else _told(server.restart(**given))

    def stop(self, arguments: Sequence[str]) -> None:
        """Stop the server; with none running, say so."""
        _expect(arguments, 0, "stop")
        server = self.server
        running = server is not None and server.is_running
        if server is not None:
            server.stop()
        print("stopped" if running else "no server is running")  # noqa: T201

    def load(self, arguments: Sequence[str]) -> object:
        """Load a model."""
        return self.running().load(*_model(arguments, "load"))

    def unload(self, arguments: Sequence[str]) -> object:
        """Unload a model."""
        return self.running().unload(*_model(arguments, "unload"))

    def pin(self, arguments: Sequence[str]) -> object:
        """Never evict a model."""
        return self.running().pin(*_model(arguments, "pin"))

    def unpin(self, arguments: Sequence[str]) -> object:
        """Allow a model's eviction again."""
        return self.running().unpin(*_model(arguments, "unpin"))

    def samples(self, arguments: Sequence[str]) -> None:
        """Write the sample models; files that are there already stay."""
        from workbench.commands.bundled import copy_bundled

        _expect(arguments, 1, "samples")
        out = arguments[0] if arguments else "sample_models"
        copy_bundled("sample_models", Path(out).expanduser())
        print(f"{out} is written: %workbench start {shlex.quote(out)}")  # noqa: T201

    def save(self, arguments: Sequence[str]) -> object:
        """Save a model as files."""
        _expect(arguments, 2, "save")
        if len(arguments) < 2:
            raise IPythonUsageError("%workbench save: which model, and where? save MODEL FOLDER")
        return self.running().save(*arguments)

    def infer(self, arguments: Sequence[str], body: str = "") -> object:
        """Run a model on the value at the end of *body*."""
        __tracebackhide__ = True
        given = _given("infer", arguments)
        if "version" in given:
            given["version"] = _number(given["version"], "infer")
        if "timeout" in given:
            given["timeout_s"] = parse_seconds(given.pop("timeout"))
        return self.running().infer(given.pop("model"), value_of(self._shell, body), **given)

    def budget(self, arguments: Sequence[str]) -> None:
        """The budget, after a change to it if one is given."""
        server = self._adjusted("budget", arguments)
        print(f"models may take {show_nbytes(server.budget or 0)}")  # noqa: T201

    def evict(self, arguments: Sequence[str]) -> None:
        """The eviction policy, after a change to it if one is given."""
        policy = POLICIES[self._adjusted("evict", arguments).evict]
        print(f"evicted first: {policy.reason} ({policy.name})")  # noqa: T201

    def keep_alive(self, arguments: Sequence[str]) -> None:
        """How long idle models stay loaded, after a change if one is given."""
        span_s = self._adjusted("keep-alive", arguments).keep_alive
        shown = show_duration(span_s) if span_s else "until room is needed"
        print(f"idle models stay loaded: {shown}")  # noqa: T201

    def _adjusted(self, verb: str, arguments: Sequence[str]) -> Workbench:
        """The running server, with the setting *verb* changed to the value in *arguments*."""
        server = self.running()
        if arguments:  # "64 MiB" is one value
            setattr(server, verb.replace("-", "_"), " ".join(arguments))
        return server

    def dashboard(self, arguments: Sequence[str]) -> object:
        """Live memory, models and events, with their controls."""
        _expect(arguments, 0, "dashboard")
        return self.running().dashboard()

    def snapshot(self, arguments: Sequence[str]) -> object:
        """A picture of the dashboard, in place of the live one if there is one."""
        _expect(arguments, 0, "snapshot")
        server = self.running()
        dashboard = server.close_dashboard()
        if dashboard is None:
            dashboard = server.dashboard()
            server.close_dashboard()
        if not dashboard.is_shown:
            return dashboard
        print("the dashboard is a picture now: %workbench dashboard shows a live one")  # noqa: T201
        return None

    def plan(self, arguments: Sequence[str]) -> object:
        """How much memory the last requests need, or those of a file."""
        return self.running().plan(**_given("plan", arguments))

    def bench(self, arguments: Sequence[str]) -> object:
        """How fast a model is."""
        return self.running().bench(**_given("bench", arguments))

    def tune(self, arguments: Sequence[str]) -> object:
        """The configuration that serves most within a p99."""
        return self.running().tune(**_given("tune", arguments))

    def doctor(self, arguments: Sequence[str]) -> object:
        """What is wrong with this installation."""
        from workbench.commands.doctor import examine

        _expect(arguments, 0, "doctor")
        return examine(getattr(self._shell, "kernel", None))

    def models(self, arguments: Sequence[str]) -> object:
        """Every model."""
        _expect(arguments, 0, "models")
        return self.running().models

    def events(self, arguments: Sequence[str]) -> object:
        """The last events, also of a stopped server."""
        _expect(arguments, 1, "events")
        count = _number(arguments[0], "events") if arguments else _RECENT_EVENTS
        server = self.server or self.running()
        events = server.events
        return type(events)(events[-count:])

    def endpoint(self, arguments: Sequence[str]) -> object:
        """What the multi-model endpoint did, also of a stopped server."""
        _expect(arguments, 0, "endpoint")
        return (self.server or self.running()).endpoint

    def logs(self, arguments: Sequence[str]) -> None:
        """What the server's threads logged, also of a stopped server."""
        _expect(arguments, 0, "logs")
        print((self.server or self.running()).logs or "nothing was logged")  # noqa: T201

    def _launch(self, given: dict[str, Any]) -> Workbench:
        server = _told(Workbench(**given).start())
        setattr(self._shell, _ATTRIBUTE, server)
        return server


_VERBS = (
    "bench", "budget", "dashboard", "doctor", "endpoint", "events", "evict", "infer", "keep-alive",
    "load", "logs", "models", "pin", "plan", "restart", "samples", "save", "snapshot", "start",
    "status", "stop", "tune", "unload", "unpin",
)  # fmt: skip
_MODEL_VERBS = ("load", "unload", "pin", "unpin", "infer", "bench", "tune", "save")
_LOADS = ("--clients", "--rates", "--batches", "--batching", "--instances", "--threads")
_SETTINGS: dict[str, dict[str, Any]] = {
    f"--{option.name.replace('_', '-')}": {} for option in declared()
}
_ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "start": {"repository": {"nargs": "*"}, **_SETTINGS},
    "restart": {"repository": {"nargs": "*"}, **_SETTINGS},
    "plan": {"trace": {"nargs": "?"}, "--warm": {}, "--p99": {}, "--evict": {}},
    "infer": {
        "model": {}, "--version": {}, "--output": {}, "--timeout": {},
        "--raw": {"action": "store_true"},
    },
    "bench": {
        "model": {}, **{flag: {} for flag in _LOADS}, "--seconds": {},
        "--wire": {"choices": ("http", "python")},
    },
    "tune": {"model": {}, "--p99": {"required": True}, "--batch": {"type": int}, "--seconds": {}},
}  # fmt: skip
_WORDS = {
    "evict": tuple(POLICIES),
    "keep-alive": ("off", "1min", "5min", "1h"),
    "budget": ("256MiB", "1GiB", "4GiB", "16GiB"),  # else IPython offers words of Python
}
_VALUES = {
    f"--{option.name.replace('_', '-')}": option.metadata["parse"].choices
    for option in declared()
    if hasattr(option.metadata["parse"], "choices")
} | {"--device": ("auto", "cpu", "cuda")}


def load(shell: InteractiveShell) -> None:
    """Register the magic and its completion; nothing starts."""
    verbs = Verbs(shell)

    def workbench(line: str, cell: str | None = None) -> object:
        __tracebackhide__ = True  # of what a cell's own code raises
        try:
            return run(verbs, line, cell)
        except IPythonUsageError as error:
            raise IPythonUsageError(f"{error}{place_in_cell(currentframe())}") from None

    workbench.__doc__ = _help()
    untyped: Any = shell
    untyped.register_magic_function(workbench, "line_cell", "workbench")
    completion.register(shell, partial(complete, verbs))


def unload(shell: InteractiveShell) -> None:
    """Take the magic and its completion away."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("workbench", None)
    completion.unregister(shell)


def run(verbs: Verbs, line: str, cell: str | None = None) -> object:
    """Run the command in *line*; *cell* is what stands below it in a cell of its own."""
    __tracebackhide__ = True
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise IPythonUsageError(f"%workbench: {error}") from None
    verb, *arguments = words or ["status"]
    if verb in ("help", "--help", "-h"):
        print(_help())  # noqa: T201
        return None
    if verb not in _VERBS:
        hint = meant(verb, _VERBS) or f"; it knows {', '.join(_VERBS)};"
        raise IPythonUsageError(f"%workbench does not know {verb!r}{hint} see %workbench?")
    if {"--help", "-h"} & {*arguments}:
        print(_help_of(verb))  # noqa: T201
        return None
    if (cell is not None) != (verb == "infer"):
        right = f"%%workbench {verb} MODEL, with the input below it" if verb == "infer" else ""
        raise IPythonUsageError(f"write {right or f'%workbench {verb}, without a cell below it'}")
    act: Callable[..., object] = getattr(verbs, verb.replace("-", "_"))
    try:
        return act(arguments) if cell is None else act(arguments, cell)
    except WorkbenchError as error:
        setting = verb.replace("-", "_")
        told = str(error).removeprefix(f"{setting}: ")  # a setting of this name says so too
        raise IPythonUsageError(f"%workbench {verb}: {told}") from None


def _help_of(verb: str) -> str:
    """The lines of the help about *verb*."""
    if verb in ("start", "restart"):
        return _help()
    found: list[str] = []
    for line in _HELP.splitlines():
        command = re.split(r"\s{2,}", line.strip())[0].split()
        is_head = bool(command) and command[0].startswith("%")
        if is_head and verb in (command[1:] or ["status"]):
            found = [line]
        elif is_head and found:
            break
        elif found and line:
            found.append(line)
        elif found:
            break
    return "\n".join(found)


def complete(verbs: Verbs, line: str, symbol: str) -> list[str]:
    """The completions of *symbol*, the last word of *line*: verbs, models, options, values."""
    before = line[: len(line) - len(symbol)].split()[1:]
    if not before:
        return [verb for verb in _VERBS if verb.startswith(symbol)]
    if before[0] in _MODEL_VERBS and len(before) == 1 and not symbol.startswith("-"):
        server = verbs.server
        known = server.names if server is not None else ()
        return [name for name in known if name.startswith(symbol)]
    values = _WORDS.get(before[0], ()) if len(before) == 1 else _VALUES.get(before[-1], ())
    if values:
        return [value for value in values if value.startswith(symbol)]
    flags = [name for name in _ARGUMENTS.get(before[0], ()) if name.startswith("--")]
    asked = symbol or before[0] in _MODEL_VERBS  # else it may be the name of a file
    return [flag for flag in flags if asked and flag.startswith(symbol)]


def _told(server: Workbench) -> Workbench:
    count, folders = len(server.names), server.settings.repository
    hint = f"; put ONNX files into {folders[0]}" if folders and not count else ""
    places = addresses(server.link, server.grpc_urls)
    print(f"serving {models_count(count)} at {places}{hint}")  # noqa: T201
    return server


def _model(arguments: Sequence[str], verb: str) -> tuple[Any, ...]:
    _expect(arguments, 2, verb)
    if not arguments:
        raise IPythonUsageError(f"%workbench {verb}: which model? %workbench models lists them")
    return (arguments[0], *(_number(text, f"{verb} MODEL VERSION") for text in arguments[1:]))


def _expect(arguments: Sequence[str], most: int, verb: str) -> None:
    if len(arguments) > most:
        extra = " ".join(arguments[most:])
        raise IPythonUsageError(
            f"%workbench {verb}: unexpected argument {extra!r}; see %workbench?"
        )


def _number(text: str, verb: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise IPythonUsageError(f"%workbench {verb}: {text!r} is not a number from 1")
    return int(text)
