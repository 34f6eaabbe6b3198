"""Names that are no more: each way to say one is told what to say instead."""

from collections.abc import Callable
from typing import Literal

import pytest
from click.testing import CliRunner
from IPython.core.error import UsageError as IPythonUsageError

import workbench
from workbench import Int64, Workbench, removed
from workbench.annexes.connect.connection import Connection
from workbench.commands.cli import main
from workbench.errors import UsageError
from workbench.notebook import magics
from workbench.settings import Settings, declared, variable_name

TOLD = (UsageError, IPythonUsageError, AttributeError, ImportError)
CURE = "say so elsewhere"
SAMPLES = ("old_setting", "wb.old_verb", "workbench old-command", "bench(old=)")


@pytest.fixture(autouse=True)
def _samples(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SAMPLES:
        monkeypatch.setitem(removed.REMOVED, name, CURE)


def shell(*words: str) -> None:
    told = CliRunner().invoke(main, words, prog_name="workbench")
    assert told.exit_code == 2
    assert told.stderr.count("\n") == 1
    raise UsageError(told.stderr.strip())


def magic(line: str) -> None:
    magics.run(magics.Verbs(None), line)


def of_setting(name: str) -> list[Callable[[], object]]:
    flag = f"--{name.replace('_', '-')}"
    return [
        lambda: Settings.of(environ={}, **{name: "1"}),
        lambda: Settings.of(environ={variable_name(name): "1"}),
        lambda: setattr(Workbench(), name, "1"),
        lambda: shell("serve", ".", flag, "1"),
        lambda: shell("endpoint", ".", f"{flag}=1"),
        lambda: magic(f"start . {flag} 1"),
        lambda: magic(f"restart {flag}=1"),
    ]


def of_verb(name: str) -> list[Callable[[], object]]:
    return [
        lambda: getattr(Workbench(), name),
        lambda: getattr(Connection.__new__(Connection), name),
        *of_command(name),
    ]


def of_command(name: str) -> list[Callable[[], object]]:
    return [lambda: shell(name, "--any", "x"), lambda: magic(f"{name} x")]


def of_argument(name: str) -> list[Callable[[], object]]:
    verb, argument = name.removesuffix("=)").split("(")
    ways: list[Callable[[], object]] = [lambda: getattr(Workbench(), verb)(**{argument: 1})]
    if verb in main.commands and not main.commands[verb].hidden:
        ways.append(lambda: shell(verb, "m", f"--{argument}", "1"))
    if verb in magics._ARGUMENTS:
        ways.append(lambda: magic(f"{verb} m --{argument} 1"))
    return ways


def of_hint(name: str) -> list[Callable[[], object]]:
    jaxtypings = type("Float32[ndarray, 'n']", (), {"dtypes": ["float32"], "dim_str": "n"})
    hint = Literal["a", "b"] if name == "hint of typing.Literal" else jaxtypings

    def taking(x: hint) -> Int64["n"]: ...  # type: ignore[valid-type]
    def taking_or_not(x: hint | None) -> Int64["n"]: ...  # type: ignore[valid-type]
    def giving(x: Int64["n"]) -> hint: ...  # type: ignore[valid-type]

    return [
        lambda: Workbench(device="cpu").serve(taking),
        lambda: Workbench(device="cpu").serve(taking_or_not),
        lambda: Workbench(device="cpu").serve(giving),
    ]


def of_error(name: str) -> list[Callable[[], object]]:
    return [lambda: getattr(workbench, name), lambda: exec(f"from workbench import {name}")]


def ways_of(name: str) -> list[Callable[[], object]]:
    """All ways in which a person may say *name*."""
    if name.startswith("wb."):
        return of_verb(name.removeprefix("wb."))
    if name.startswith("workbench "):
        return of_command(name.removeprefix("workbench "))
    if name.startswith("error "):
        return of_error(name.removeprefix("error "))
    if name.startswith("hint of "):
        return of_hint(name)
    return of_argument(name) if name.endswith("=)") else of_setting(name)


@pytest.mark.parametrize("name", [*removed.REMOVED, *SAMPLES])
def test_a_name_that_is_no_more_is_told_with_its_cure(name: str) -> None:
    """In Python, variables, the shell and the magic, in one line."""
    cure = removed.REMOVED[name]
    for way in ways_of(name):
        with pytest.raises(TOLD) as told:
            way()
        assert f"any more: {cure}" in str(told.value)
        assert "\n" not in str(told.value)


def test_names_are_gone() -> None:
    """A name in the table is that of no setting, verb or command."""
    settings = {option.name for option in declared()}
    verbs = {f"wb.{name}" for name in dir(Workbench)}
    commands = {f"workbench {name}" for name in main.commands}
    assert not removed.REMOVED.keys() & (settings | verbs | commands)


def test_the_table_is_easy_to_read() -> None:
    """Its names are in alphabetical order, but for those of arguments, which come first."""
    names = [name for name in removed.REMOVED if name not in SAMPLES and not name.endswith("=)")]
    assert names == sorted(names)
    assert not [cure for cure in removed.REMOVED.values() if cure.endswith(".")]


def test_other_unknown_names_are_told_as_before() -> None:
    """What never was is no name of the table."""
    assert removed.no_more("setting", "bugdet") == ""
    with pytest.raises(UsageError, match="No such option"):
        shell("serve", ".", "--old-verb", "1")
