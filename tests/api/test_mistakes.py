"""Plausible mistakes in calls of a workbench: each is one line."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench import Workbench
from workbench.errors import AttributeUnknown, UsageError, WorkbenchError


@pytest.fixture(scope="module")
def served(sample_models: Path) -> Iterator[Any]:
    with Workbench(sample_models) as wb:
        yield wb


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda wb: wb.infer("digts", [1.0]), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: asyncio.run(wb.ainfer("digts", [1.0])), "'digts'; did you mean 'digits'?"),
    (lambda wb: wb.infer("nobody", [1.0]), "there is no model 'nobody'; available: diabetes, "),
    (lambda wb: wb.load("digts"), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.load("digts", config={}), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.unload("digts"), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.pin("digts"), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.unpin("digts"), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.save("digts", "to"), "there is no model 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.serve(len, "f", exmple=[1]), "no argument 'exmple'; did you mean 'example'?"),
    (lambda wb: wb.serve(len, "f", copy="no"), "copy= is True or False, not 'no'"),
    (lambda wb: wb.serve(len, "f", onnx="no"), "onnx= is True or False, not 'no'"),
    (lambda wb: wb.save("digits", "to", anyway="no"), "anyway= is True or False, not 'no'"),
    (lambda wb: wb.unregister("digts"), "was added as 'digts'; did you mean 'digits'?"),
    (lambda wb: wb.load(5), "the name of a model is a str, such as 'digits', not int"),
    (lambda wb: wb.load(["digits"]), "the name of a model is a str, such as 'digits', not list"),
    (lambda wb: wb.load("digits", "1"), "the version of a model is an int, such as 1, not '1'"),
    (lambda wb: wb.load("digits", True), "the version of a model is an int, such as 1, not True"),
    (lambda wb: wb.load("digits", 1.0), "the version of a model is an int, such as 1, not 1.0"),
    (lambda wb: wb.load("digits", versoin=1), "no argument 'versoin'; did you mean 'version'?"),
    (lambda wb: wb.load("digits", files=5), "files are bytes or paths by '<version>/<name>'"),
    (lambda wb: wb.load("m", files={"1/m": 5}), "the file for '1/m' is bytes or a path, not 5"),
    (lambda wb: wb.unload(None), "the name of a model is a str"),
    (lambda wb: wb.pin("digits", "x"), "the version of a model is an int, such as 1, not 'x'"),
    (lambda wb: wb.unpin(3), "the name of a model is a str"),
    (lambda wb: wb.save("digits", 5), "to: 5 is not a path"),
    (lambda wb: wb.infer(), "infer: missing a required argument: 'model'; it takes (model, "),
    (lambda wb: wb.infer("wine", [[0.0] * 13], version="1"), "the version of a model is an int"),
    (lambda wb: wb.stop("soon"), "timeout_s is 'soon': it must be seconds, 0 or more"),
    (lambda wb: wb.stop(-1), "timeout_s is -1: it must be seconds, 0 or more"),
    (lambda wb: wb.dashbord(), "a workbench has no attribute 'dashbord'; did you mean 'dashboard'"),
    (lambda wb: wb.connect, "a workbench has no attribute 'connect'"),
    (lambda wb: wb.wine, "a workbench has no attribute 'wine': write wb['wine']"),
    (lambda wb: wb.predict, "a workbench has no attribute 'predict'; did you mean 'infer'?"),
    (lambda wb: wb.models["win"], "there is no model 'win'; did you mean 'wine'?"),
    (lambda wb: wb.models["x"], "there is no model 'x'; available: "),
    (lambda wb: wb.models.wine, "a list of models has no attribute 'wine': write ['wine']"),
    (lambda wb: wb.models.to_frame, "has no attribute 'to_frame': df() is a table of it"),
    (lambda wb: wb.events.tail, "a list of events has no attribute 'tail': df() is a table of it"),
    (lambda wb: wb.events.cont, "has no attribute 'cont'; did you mean 'count'?"),
    (lambda wb: wb["wine"].load, "a model has no attribute 'load': write wb.load('wine')"),
    (lambda wb: wb["wine"].infer, "a model has no attribute 'infer': write wb.infer('wine')"),
    (lambda wb: wb["wine"].state, "no attribute 'state': write wb['wine'].status.state"),
    (lambda wb: wb["wine"].exmple, "no attribute 'exmple'; did you mean 'example'?"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "told"), MISTAKES)
def test_a_mistake_is_one_line(served: Any, call: Callable[[Any], object], told: str) -> None:
    """A wrong argument or attribute is one line, in a cell too, and the server goes on."""
    with pytest.raises(WorkbenchError) as caught:
        call(served)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(caught.value._render_traceback_()) == 1
    assert served.is_running


@pytest.mark.parametrize(
    "call",
    [
        lambda wb, path: wb.save("wine", path),
        lambda wb, path: wb.save("wine", path / "model.tar.gz"),
    ],
)
def test_a_file_that_cannot_be_written(
    served: Any, call: Callable[[Any, Path], object], tmp_path: Path
) -> None:
    """What the system says of the file is one line; its OSError is the cause."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=f"^{file}.*: (Not a directory|File exists)$") as caught:
        call(served, file / "below")
    assert isinstance(caught.value.__cause__, OSError)


def test_what_people_try_first(served: Any) -> None:
    """Models are found by their names, and models and events are tables."""
    assert "wine" in served.models
    assert served.models[0] in served.models
    assert "vine" not in served.models
    assert (served.models["wine"].name, served.models["wine"].version) == ("wine", 1)
    assert served.events.df().kind.tolist() == [entry.event.kind for entry in served.events]
    assert list(served.events[:1].df()) == ["number", "at_s", "kind", "model", "text"]


def test_errors_of_properties_are_kept() -> None:
    """An AttributeError inside a property is told as it is."""

    class Broken(Workbench):
        @property
        def broken(self) -> object:
            return object().missing  # type: ignore[attr-defined]

    wb = Broken()
    with pytest.raises(AttributeError, match="'object' object has no attribute 'missing'"):
        _ = wb.broken
    with pytest.raises(AttributeUnknown):
        _ = wb.brokn  # type: ignore[attr-defined]


def test_a_misspelt_name_of_the_package() -> None:
    """It is told with the one that was meant; one that is like no other, alone."""
    with pytest.raises(AttributeError, match="has no attribute 'Workbnch'; did you mean 'Workb"):
        workbench.Workbnch  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        workbench.nothing  # noqa: B018
