"""The models that Python code brings, beside those of the repository."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.header.file import OnnxFile, read_onnx_file
from workbench.core import ServerCore
from workbench.errors import LoadFailed, MemoryExhausted, ModelNotFound, RequestStopped, UsageError
from workbench.model import FunctionModel, ModelConfig, ModelId, ModelSource, TensorSpec
from workbench.nbytes import show_nbytes
from workbench.objects.by_example import seen_by
from workbench.objects.calling import Loop
from workbench.objects.choose import servable, with_frozen_self
from workbench.objects.declared import (
    Declared,
    Turns,
    checked_name,
    declared_id,
    declared_model,
    scheduled,
)
from workbench.objects.kinds import kind_of, name_of
from workbench.objects.servable import Servable
from workbench.objects.served import Served
from workbench.own_folder import OwnFolder
from workbench.repository import MLFLOW_CURE, is_mlflows
from workbench.spelling import meant
from workbench.tensor import Array, Tensor

_FILE = "model.onnx"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The wish to have an object as ONNX: compared on the rows *check*, as ``wb.serve`` says."""

    check: Any = None
    tolerance: float | None = None
    anyway: bool = False


class Convert(Protocol):
    """Writes an object as an ONNX file, compared with the object; returns a report of that."""

    def __call__(self, made: Servable, wish: Conversion, path: Path) -> Any: ...


class PythonModels:
    """Serves functions, objects and ONNX files by the core that *core* gives.

    *convert* is the conversion to ONNX, where that is wished for.
    """

    def __init__(self, core: Callable[[], ServerCore], convert: Convert) -> None:
        self._core = core
        self._convert = convert
        self._loop = Loop()
        self._folders: dict[str, OwnFolder] = {}  # of models that were written to files
        self._servables: dict[str, Servable] = {}  # of objects that are served
        self._reports: dict[str, Any] = {}  # of those that were converted
        self._examples: dict[str, dict[str, Array]] = {}  # one row of what models were served with

    def register(
        self,
        function: Callable[..., Any],
        name: str | None,
        *,
        version: int = 1,
        inputs: Declared | None,
        outputs: Declared | None,
        memory: str | int | None = None,
        turns: Turns,
    ) -> FunctionModel:
        model = declared_id(function, name, version)
        served = declared_model(
            function, inputs, outputs, loop=self._loop, memory=memory, turns=turns
        )
        self._register(model, served)
        return served

    def serve(
        self,
        thing: Any,
        name: object,
        *,
        example: Any,
        inputs: Declared | None,
        outputs: Declared | None,
        turns: Turns,
        copy: bool | None,
        conversion: Conversion | None,
    ) -> Served:
        if name is not None and not isinstance(name, str):
            kind = type(name).__name__
            raise UsageError(f"the name of a model is a str, not {kind}: wb.serve(thing, name)")
        if name:
            checked_name(name)
        if isinstance(thing, str | PathLike | bytes) or kind_of(thing) == "onnx":
            _refuse("an ONNX model", example=example, inputs=inputs, outputs=outputs, copy=copy)
            _refuse("an ONNX model", onnx=conversion, **turns.given)
            return self._serve_onnx(thing, name)
        made = servable(thing, example, inputs, copy)
        if made is not None:
            if made.library != "torch":
                _refuse(f"a model of {made.library}", inputs=inputs)
            _refuse(f"a model of {made.library}", outputs=outputs)
            return self._serve_object(made, name or name_of(made.thing), turns, conversion)
        if isinstance(thing, type):
            raise UsageError(f"{thing.__name__} is a class: serve an object of it")
        if not callable(thing):
            own = ", such as its predict" if callable(getattr(thing, "predict", None)) else ""
            raise UsageError(
                f"{type(thing).__name__} cannot be served: serve an ONNX model, an estimator, a "
                f"torch.nn.Module, a pipeline of transformers, or a function{own}"
            )
        _refuse("a function", onnx=conversion)
        function = with_frozen_self(thing, copy)
        how = "a function"
        if example is not None:
            _refuse("a function with an example", inputs=inputs, outputs=outputs)
            name = name or declared_id(function, name, 1).name
            function, inputs, outputs = seen_by(function, example, self._loop)
            how = "a function, called with the example"
        served = self.register(function, name, inputs=inputs, outputs=outputs, turns=turns)
        model = declared_id(function, name, 1)
        return Served(model.name, how, served.inputs, served.outputs)

    @property
    def objects(self) -> Mapping[str, Servable]:
        """The objects that are served, by the names of their models."""
        return self._servables

    def report(self, name: str) -> Any:
        """The report of the conversion of *name*, if it was converted."""
        return self._reports.get(name)

    def example(self, name: str) -> Mapping[str, Array] | None:
        """The first row of the example that model *name* was served with, if it was."""
        return self._examples.get(name)

    def unregister(self, name: str) -> None:
        core = self._core()
        try:
            core.call(core.models.remove, name)
        except ModelNotFound as error:
            names = core.status.names()
            if name not in names:
                hint = meant(name, names) if isinstance(name, str) else ""
                raise ModelNotFound(f"{error}{hint}") from None
            raise ModelNotFound(
                f"{name!r} is a model of the repository: unload it, or take its folder out"
            ) from None
        self._keep(name, None)

    def stop(self) -> None:
        """End what still runs on the loop of ``async`` functions."""
        self._loop.close()

    # ── ONNX ──

    def _serve_onnx(self, thing: Any, name: str | None) -> Served:
        """Serve a file where it is, and others as a file of our own."""
        if isinstance(thing, str | PathLike):
            path = Path(thing)
            if path.is_dir():
                raise _refuse_folder(path)
            if not path.is_file():
                raise UsageError(f"there is no file {str(path)!r}")
            _read(path)
            return self._served_file(name or path.stem, path, None, "the ONNX file")
        if name is None:
            raise UsageError("an ONNX model without a file needs a name: wb.serve(model, 'name')")
        content = thing if isinstance(thing, bytes) else thing.SerializeToString()
        folder = OwnFolder()
        path = Path(folder.name, _FILE)
        path.write_bytes(content)
        try:
            read_onnx_file(path)
        except LoadFailed:
            folder.close()
            raise UsageError("these bytes are no ONNX model") from None
        return self._served_file(name, path, folder, "an ONNX model")

    def _served_file(
        self, name: str, path: Path, folder: OwnFolder | None, how: str, report: Any = None
    ) -> Served:
        """Serve the file at *path*, which is in *folder* if it is our own."""
        source = ModelSource(ModelId(name, 1), ModelConfig(name), path)
        told = OnnxBackend().inspect(source).signature
        core = self._core()
        try:
            core.call(core.models.serve, name, path)
        except LoadFailed:
            self.unregister(name)
            raise
        except (MemoryExhausted, RequestStopped):  # it is served all the same, and loads later
            self._keep(name, folder)
            raise
        self._keep(name, folder)
        inputs, outputs = (tuple(specs.values()) for specs in (told.inputs, told.outputs))
        return Served(name, how, inputs, outputs, report)

    def _keep(self, name: str, folder: OwnFolder | None) -> None:
        """Keep *folder* as long as *name* is served of it; forget what was of the model before."""
        self._servables.pop(name, None)
        self._reports.pop(name, None)
        self._examples.pop(name, None)
        before = self._folders.pop(name, None)
        if folder is not None:
            self._folders[name] = folder
        if before is not None:
            before.close()

    # ── objects ──

    def _serve_object(
        self, made: Servable, name: str, turns: Turns, conversion: Conversion | None
    ) -> Served:
        if conversion is not None:
            _refuse("a model that is converted", **turns.given)
            folder = OwnFolder()
            path = Path(folder.name, _FILE)
            report = self._convert(made, conversion, path)
            told = self._served_file(name, path, folder, str(report), report)
            self._reports[name] = report
        else:
            function = declared_model(made.call, made.inputs, made.outputs, loop=self._loop)
            function = replace(
                scheduled(function, turns),
                nbytes=made.nbytes,
                place="",
                columns=made.columns,
                steady=made.steady,
                some=made.some if function.function is made.call else None,
                alike=made.alike,
            )
            self._register(ModelId(name, 1), function)
            told = Served(name, _how(made), function.inputs, function.outputs)
        self._servables[name] = made
        if made.example:
            self._examples[name] = _one_row(made.example, told.inputs)
        return told

    def _register(self, model: ModelId, function: FunctionModel) -> None:
        core = self._core()
        core.call(core.models.register, model, function)
        self._keep(model.name, None)
        if 0 < gc.get_threshold()[2] < 4 * gc.get_count()[2]:
            gc.collect()  # it is soon due, for the libraries: all requests would wait for it then


def _how(made: Servable) -> str:
    """The line that says which object answers: a copy, or itself."""
    if made.unfrozen:
        return (
            f"{made.kind} itself, by {made.calls}: later changes of it will show, since "
            f"{made.unfrozen}"
        )
    size = f" of {show_nbytes(made.nbytes)}" if made.nbytes else ""
    return f"a copy{size} of {made.kind}, by {made.calls}"


def _one_row(example: Mapping[str, Array], inputs: tuple[TensorSpec, ...]) -> dict[str, Array]:
    """The first row of *example*, as the *inputs* take it; nothing if they take more rows only."""
    rows = {}
    for spec in inputs:
        array = example[spec.name]
        row = array[:1] if array.ndim else array
        rows[spec.name] = Tensor.cast(row, spec.datatype, missing=spec.missing).array
        if not spec.accepts(rows[spec.name].shape):
            return {}
    return rows


def _read(path: Path) -> OnnxFile:
    """The header of the ONNX file at *path*. Raises ``LoadFailed``."""
    try:
        return read_onnx_file(path)
    except LoadFailed as error:
        if path.suffix == ".onnx":
            raise
        cure = "load it with the library that wrote it, and serve the object"
        raise LoadFailed(f"{error}; {cure}") from None


def _refuse_folder(folder: Path) -> UsageError:
    """The error of a *folder* that was to be served; it names the ONNX file of its model."""
    files = sorted((*folder.glob("model.onnx"), *folder.glob("[0-9]*/model.onnx")))
    if not files and is_mlflows(folder):
        return UsageError(f"{str(folder)!r} is a model of MLflow's: {MLFLOW_CURE}")
    if not files:
        return UsageError(
            f"{str(folder)!r} is a folder: serve an ONNX file, or all models in the folder: "
            f"Workbench({str(folder)!r})"
        )
    return UsageError(
        f"{str(folder)!r} is a folder: serve the ONNX file in it, {str(files[-1])!r}, or a "
        f"repository with such folders in it: Workbench({str(folder.parent)!r})"
    )


def _refuse(what: str, **given: Any) -> None:
    """Raise ``UsageError`` for options that *what* does not have."""
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option}= is not for {what}")
