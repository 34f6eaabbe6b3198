"""``%workbench``: the server from a notebook cell.

The running server is kept on the IPython shell, where a reloaded extension
finds it again. A mistake is one line, without a traceback.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import currentframe
from pathlib import Path
from textwrap import TextWrapper
from typing import Any, NoReturn

from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench.annex import annexes
from workbench.api.workbench import Workbench
from workbench.errors import WorkbenchError
from workbench.memory.eviction import POLICIES
from workbench.nbytes import show_nbytes
from workbench.notebook import completion
from workbench.notebook.cell import value_of
from workbench.removed import no_more_option, no_more_verb
from workbench.repository import taken_as
from workbench.seconds import parse_seconds, show_duration
from workbench.settings import Settings, declared, difference, kept
from workbench.spelling import meant
from workbench.tracebacks import place_in_cell
from workbench.views.text import addresses, models_count, repository_faults
from workbench.views.times import show_age

_ATTRIBUTE = "_workbench"  # on the shell

_MAGICS = {verb: magic for annex in annexes() for verb, magic in annex.magics.items()}

_HELP = {
    "status": ("", "the state of the running server, also without a verb"),
    "start": ("[FOLDER] [OPTIONS]", "serve the models of FOLDER; again: the same server"),
    "restart": ("[FOLDER] [OPTIONS]", "stop, and start with changed options; the rest stay"),
    "stop": ("", "stop, and give all memory back"),
    "load": ("MODEL [VERSION]", "load a model now"),
    "unload": ("MODEL [VERSION]", "unload it"),
    "pin": ("MODEL [VERSION]", "load it, and never evict it"),
    "unpin": ("MODEL [VERSION]", "allow its eviction again"),
    "save": (
        "MODEL FOLDER",
        (
            "save it as a folder for Triton, KServe and this server, or as an archive for "
            "SageMaker: save MODEL model.tar.gz"
        ),
    ),
    "infer": (
        "MODEL [OPTIONS]",
        (
            "run a model; the rest of the cell is Python that ends with the input: --version 1 "
            "--output y --timeout 5s --raw"
        ),
    ),
    "budget": ("[AMOUNT]", "the memory that models may take, or change it: 64MiB"),
    "evict": ("[POLICY]", "which model is evicted first: lru, lfu, largest, cost, or never"),
    "keep-alive": ("[TIME]", "how long an idle model stays loaded: 5min, or off"),
    "dashboard": ("", "live memory, models, events and their controls"),
    "snapshot": (
        "",
        (
            "a picture of the dashboard, which the saved notebook keeps: in place of the live one, "
            "or here"
        ),
    ),
    "samples": ("[FOLDER]", "write the sample models (sample_models)"),
    "doctor": ("", "what is wrong with this installation, and its cure"),
    "models": ("", "every model, loaded or not"),
    "events": ("[N]", "the last N events (30), also of a stopped server"),
    "logs": ("", "what the server's threads logged, also of a stopped server"),
    **{verb: (magic.follows, magic.does) for verb, magic in _MAGICS.items()},
}
"""The verbs: what follows each, and what it does."""


class _ArgumentParser(argparse.ArgumentParser):
    """Raises an error for a mistake in *words*, and does not end the process."""

    words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2]
        option = unknown.partition(" ")[0].partition("=")[0]
        known = self._option_string_actions
        if gone := no_more_option(self.prog.rpartition(" ")[2], option):
            raise IPythonUsageError(f"%{self.prog}: {gone}")
        dashed = [word for word in self.words if word[0:1] == "-" and word not in known]
        if near := get_close_matches(option, known, 1):
            hint = f"did you mean {near[0]}?"
        elif dashed and "are required" in message:
            hint = f"before a name with a dash write --: %{self.prog} -- {dashed[0]}"
        elif unknown and any(word.startswith("--") for word in self.words) and not dashed:
            hint = "put a value with spaces in quotes"
        else:
            hint = "see %workbench?"
        raise IPythonUsageError(f"%{self.prog}: {message}; {hint}")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1")
    return int(text)


def _given(verb: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The values in *arguments*, by name; without the options that they leave out."""
    marks = "%" if verb == "infer" else ""  # a cell magic has two
    parser = _ArgumentParser(
        prog=f"{marks}workbench {verb}",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.words = arguments
    for name, about in _ARGUMENTS.get(verb, {}).items():
        parser.add_argument(*sorted({name, name[:2] + name[2:].replace("-", "_")}), **about)
    return vars(parser.parse_args(arguments))


def _help() -> str:
    verbs = [_help_of(verb) for verb in _HELP]
    options = [f"    --{option.name.replace('_', '-'):<12} {option.help}" for option in declared()]
    lines = ["A model server inside this kernel.", "", *verbs, "", "Options of start and restart:"]
    return "\n".join([*lines, *options, ""])


def _help_of(verb: str) -> str:
    what, about = _HELP[verb]
    mark = "%%" if verb == "infer" else "%"
    head = f"    {mark}workbench {verb} {what}".rstrip()
    return TextWrapper(98, f"{head:<41} ", " " * 42, break_on_hyphens=False).fill(about)


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
        held = self._held()
        return next(iter(held.values())) if len(held) == 1 else own

    def _held(self) -> dict[str, Workbench]:
        """The running servers that variables hold, each by the name of one."""
        names = {
            each: name
            for name, each in self._shell.user_ns.items()
            if isinstance(each, Workbench) and each.is_running and not name.startswith("_")
        }
        return {name: each for each, name in names.items()}

    def _no_server(self) -> str:
        """Why there is no server for a verb: none runs, or several that are not the magic's."""
        held = self._held()
        if held:
            return f"several servers run here, in {', '.join(held)}: use these variables"
        return "no server is running: %workbench start FOLDER"

    def running(self) -> Workbench:
        """The running server; a usage error without one."""
        server = self.server
        if server is None or not server.is_running:
            raise IPythonUsageError(self._no_server())
        return server

    def status(self) -> Workbench | None:
        if self.server is None or not self.server.is_running:
            print(self._no_server())  # noqa: T201
            return None
        return self.server

    def start(self, **given: Any) -> Workbench:
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

    def restart(self, **given: Any) -> Workbench:
        server = self.server if self._own is None else self._own
        if server is None and self._held():
            raise IPythonUsageError(self._no_server())
        return self._launch(given) if server is None else _told(server.restart(**given))

    def _launch(self, given: dict[str, Any]) -> Workbench:
        server = _told(Workbench(**given).start())
        setattr(self._shell, _ATTRIBUTE, server)
        return server

    def stop(self) -> None:
        server = self.server
        running = server is not None and server.is_running
        if server is not None:
            server.stop()
        elif self._held():
            raise IPythonUsageError(self._no_server())
        print("stopped" if running else "no server is running")  # noqa: T201

    def samples(self, folder: str = "sample_models") -> None:
        from workbench.commands.bundled import copy_bundled

        copy_bundled("sample_models", Path(folder).expanduser())
        print(f"{folder} is written: %workbench start {shlex.quote(folder)}")  # noqa: T201

    def infer(self, body: str, **given: Any) -> object:
        __tracebackhide__ = True
        if "timeout" in given:
            given["timeout_s"] = parse_seconds(given.pop("timeout"), "timeout")
        return self.running().infer(given.pop("model"), value_of(self._shell, body), **given)

    def budget(self, words: Sequence[str] = ()) -> None:
        server = self._adjusted("budget", words)
        print(f"models may take {show_nbytes(server.budget or 0)}")  # noqa: T201

    def evict(self, words: Sequence[str] = ()) -> None:
        policy = POLICIES[self._adjusted("evict", words).evict]
        print(f"evicted first: {policy.reason} ({policy.name})")  # noqa: T201

    def keep_alive(self, words: Sequence[str] = ()) -> None:
        span_s = self._adjusted("keep_alive", words).keep_alive
        shown = show_duration(span_s) if span_s else "until room is needed"
        print(f"idle models stay loaded: {shown}")  # noqa: T201

    def _adjusted(self, setting: str, words: Sequence[str]) -> Workbench:
        """The running server, with a *setting* changed if *words* give a value: 64 MiB is one."""
        server = self.running()
        if words:
            setattr(server, setting, " ".join(words))
        return server

    def snapshot(self) -> object:
        server = self.running()
        dashboard = server.close_dashboard()
        if dashboard is None:
            dashboard = server.dashboard()
            server.close_dashboard()
        if not dashboard.is_shown:
            return dashboard
        print("the dashboard is a picture now: %workbench dashboard shows a live one")  # noqa: T201
        return None

    def doctor(self) -> object:
        from workbench.commands.doctor import examine

        return examine(getattr(self._shell, "kernel", None))

    def models(self) -> object:
        return self.running().models

    def events(self, count: int) -> object:
        events = (self.server or self.running()).events
        return events[-count:]

    def logs(self) -> None:
        print((self.server or self.running()).logs or "nothing was logged")  # noqa: T201


_PASSED_ON = ("load", "unload", "pin", "unpin", "dashboard", "save")
"""Verbs that are methods of the running server, with the same arguments."""
_SETTINGS: dict[str, dict[str, Any]] = {
    f"--{option.name.replace('_', '-')}": {} for option in declared()
}
_MODEL: dict[str, dict[str, Any]] = {
    "model": {}, "version": {"nargs": "?", "type": _number, "default": None}
}  # fmt: skip
_WORD: dict[str, dict[str, Any]] = {"words": {"nargs": "*"}}
_ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "start": {"repository": {"nargs": "*"}, **_SETTINGS},
    "restart": {"repository": {"nargs": "*"}, **_SETTINGS},
    **dict.fromkeys(("load", "unload", "pin", "unpin"), _MODEL),
    **dict.fromkeys(("budget", "evict", "keep-alive"), _WORD),
    "save": {"model": {}, "to": {"metavar": "folder"}},
    "samples": {"folder": {"nargs": "?"}},
    "events": {"count": {"nargs": "?", "type": _number, "default": 30}},
    "infer": {
        "model": {}, "--version": {"type": _number}, "--output": {}, "--timeout": {},
        "--raw": {"action": "store_true"},
    },
    **{verb: dict(magic.arguments) for verb, magic in _MAGICS.items()},
}  # fmt: skip
_WORDS = {
    "evict": tuple(POLICIES),
    "keep-alive": ("off", "1min", "5min", "1h"),
    "budget": ("256MiB", "1GiB", "4GiB", "16GiB"),  # else IPython offers words of Python
}
_VALUES = {
    f"--{option.name.replace('_', '-')}": option.parse.choices
    for option in declared()
    if hasattr(option.parse, "choices")
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
    if verb not in _HELP:
        raise IPythonUsageError(_unknown(verb))
    if {"--help", "-h"} & {*arguments}:
        print(_help() if verb in ("start", "restart") else _help_of(verb))  # noqa: T201
        return None
    if (cell is not None) != (verb == "infer"):
        right = f"%%workbench {verb} MODEL, with the input below it" if verb == "infer" else ""
        raise IPythonUsageError(f"write {right or f'%workbench {verb}, without a cell below it'}")
    given = _given(verb, arguments)
    if cell is not None:
        given["body"] = cell
    try:
        if verb in _MAGICS:
            server = None if _MAGICS[verb].needs_server else verbs.server
            return _MAGICS[verb].act(server or verbs.running(), **given)
        owner = verbs.running() if verb in _PASSED_ON else verbs
        act: Callable[..., object] = getattr(owner, verb.replace("-", "_"))
        return act(**given)
    except WorkbenchError as error:
        setting = verb.replace("-", "_")
        told = str(error).removeprefix(f"{setting}: ")  # a setting of this name says so too
        mark = "%" if cell is None else "%%"
        raise IPythonUsageError(f"{mark}workbench {verb}: {told}") from None


def complete(verbs: Verbs, line: str, symbol: str) -> list[str]:
    """The completions of *symbol*, the last word of *line*: verbs, models, options, values."""
    before = line[: len(line) - len(symbol)].split()[1:]
    if not before:
        return [verb for verb in _HELP if verb.startswith(symbol)]
    arguments = _ARGUMENTS.get(before[0], {})
    if "model" in arguments and len(before) == 1 and not symbol.startswith("-"):
        server = verbs.server
        known = server.names if server is not None else ()
        return [name for name in known if name.startswith(symbol)]
    values = _WORDS.get(before[0], ()) if len(before) == 1 else _VALUES.get(before[-1], ())
    if values:
        return [value for value in values if value.startswith(symbol)]
    flags = [name for name in arguments if name.startswith("--")]
    asked = symbol or "model" in arguments  # else it may be the name of a file
    return [flag for flag in flags if asked and flag.startswith(symbol)]


def _unknown(verb: str) -> str:
    """The message for an unknown *verb*."""
    from workbench.commands.cli import main  # click takes its time

    if verb in main.commands:
        return f"{verb} is for a shell: workbench {verb} --help"
    if gone := no_more_verb(f"%workbench {verb}", verb):
        return gone
    hint = meant(verb, _HELP) or f"; it knows {', '.join(sorted(_HELP))};"
    return f"%workbench does not know {verb!r}{hint} see %workbench?"


def _told(server: Workbench) -> Workbench:
    count = len(server.names)
    folders = server.settings.repository
    faults = repository_faults(server.models, folders, "wb.models")
    hints = filter(None, (taken_as(folders, server.settings.name), faults))
    places = addresses(server.link, server.grpc_urls)
    print("; ".join([f"serving {models_count(count)} at {places}", *hints]))  # noqa: T201
    return server
