"""The models that Python code brings, beside those of the repository."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from workbench.asking.given import in_order
from workbench.backends.onnx.header.file import OnnxFile, read_onnx_file
from workbench.objects.by_example import seen_by
from workbench.objects.calling import Loop
from workbench.objects.declared import Declared, checked_name, declared_id, declared_model
from workbench.conversion.difference import Difference
from workbench.objects.kinds import kind_of, name_of
from workbench.objects.offer import Offer
from workbench.backends.onnx.zip_maps import with_tensors
from workbench.conversion.things import Converted, Served, convert, offer_of, signature_of
from workbench.core import ServerCore
from workbench.errors import LoadFailed, MemoryExhausted, ModelNotFound, RequestStopped, UsageError
from workbench.model import FunctionModel, ModelId, TensorSpec
from workbench.own_folder import OwnFolder
from workbench.repository import MLFLOW_CURE, is_mlflows
from workbench.tensor import Array, Tensor

_FILE = "model.onnx"


class PythonModels:
    """Serves functions and converted models by the core that *core* gives."""

    def __init__(self, core: Callable[[], ServerCore]) -> None:
        self._core = core
        self._loop = Loop()
        self._folders: dict[str, OwnFolder] = {}  # of models that were written to files
        self._columns: dict[str, Sequence[str]] = {}  # that models of a matrix were fitted to
        self._examples: dict[str, dict[str, Array]] = {}  # one row of what models were served with

    def register(
        self,
        function: Callable[..., Any],
        name: str | None,
        version: int,
        inputs: Declared | None,
        outputs: Declared | None,
        **schedule: Any,
    ) -> FunctionModel:
        model = declared_id(function, name, version)
        served = declared_model(function, inputs, outputs, loop=self._loop, **schedule)
        self._register(model, served)
        return served

    def serve(
        self, thing: Any, name: object, example: Any, convert: bool | None, declared: dict[str, Any]
    ) -> Served:
        if name is not None and not isinstance(name, str):
            kind = type(name).__name__
            raise UsageError(f"the name of a model is a str, not {kind}: wb.serve(thing, name)")
        if name:
            checked_name(name)
        if isinstance(thing, str | PathLike | bytes) or kind_of(thing) == "onnx":
            _expect_none("an ONNX model", example=example, **declared)
            return self._serve_onnx(thing, name)
        offer = offer_of(thing, example, declared["inputs"])
        if offer is not None:
            may_declare = kind_of(thing) == "torch"
            refused = {"outputs": declared["outputs"]} if may_declare else declared
            _expect_none(f"a model of {kind_of(thing)}", **refused)
            name = name or name_of(thing)
            told = self._serve_offer(offer, name, convert)
            self._columns[name] = offer.columns
            if example is not None:
                self._examples[name] = _one_row(offer.example, told.inputs)
            return told
        if isinstance(thing, type):
            raise UsageError(f"{thing.__name__} is a class: serve an object of it")
        if not callable(thing):
            own = ", such as its predict" if callable(getattr(thing, "predict", None)) else ""
            raise UsageError(
                f"{type(thing).__name__} cannot be served: serve an ONNX model, an estimator, a "
                f"torch.nn.Module, a pipeline of transformers, or a function{own}"
            )
        _expect_none("a function", convert=convert)
        how = "a function"
        if example is not None:
            _expect_none("a function with an example", **declared)
            name = name or declared_id(thing, name, 1).name
            thing, inputs, outputs = seen_by(thing, example, self._loop)
            declared = {"inputs": inputs, "outputs": outputs}
            how = "a function, called with the example"
        served = self.register(thing, name, **{"version": 1, **declared})
        model = declared_id(thing, name, 1)
        return Served(model.name, how, served.inputs, served.outputs)

    def in_order(self, name: str, inputs: object) -> object:
        """*inputs* of model *name*; a table's columns are in the order that it was fitted to.

        Raises ``InvalidRequest``.
        """
        columns = self._columns.get(name)
        return in_order(name, inputs, columns) if columns else inputs

    def example(self, name: str) -> Mapping[str, Array] | None:
        """The first row of the example that model *name* was served with, if it was."""
        return self._examples.get(name)

    def unregister(self, name: str) -> None:
        core = self._core()
        try:
            core.call(core.remove, name)
        except ModelNotFound:
            if name not in core.names():
                raise
            raise ModelNotFound(
                f"{name!r} is a model of the repository: unload it, or take its folder out"
            ) from None
        self._keep(name, None)

    def stop(self) -> None:
        """End what still runs on the loop of ``async`` functions."""
        self._loop.close()

    # ── ONNX ──

    def _serve_onnx(self, thing: Any, name: str | None) -> Served:
        """Serve a file as it is, unless its outputs have to be rewritten, and others as a file."""
        if isinstance(thing, str | PathLike):
            path = Path(thing)
            if path.is_dir():
                raise _refuse_folder(path)
            if not path.is_file():
                raise UsageError(f"there is no file {str(path)!r}")
            name = name or path.stem
            if all(output.kind == "tensor" for output in _read(path).outputs):
                return self._served_file(name, path, None, "the ONNX file")
            content = path.read_bytes()
        elif name is None:
            raise UsageError("an ONNX model without a file needs a name: wb.serve(model, 'name')")
        else:
            content = thing if isinstance(thing, bytes) else thing.SerializeToString()
        folder = OwnFolder()
        path = Path(folder.name, _FILE)
        path.write_bytes(with_tensors(content))
        return self._served_file(name, path, folder, "an ONNX model")

    def _served_file(
        self,
        name: str,
        path: Path,
        folder: OwnFolder | None,
        how: str,
        differs: Difference | None = None,
    ) -> Served:
        """Serve the file at *path*, which is in *folder* if it is our own."""
        signature = signature_of(path, name)
        core = self._core()
        try:
            core.call(core.serve, name, path)
        except LoadFailed:
            self.unregister(name)
            raise
        except (MemoryExhausted, RequestStopped):  # it is served all the same, and loads later
            self._keep(name, folder)
            raise
        self._keep(name, folder)
        inputs, outputs = (tuple(s.values()) for s in (signature.inputs, signature.outputs))
        return Served(name, how, inputs, outputs, differs)

    def _keep(self, name: str, folder: OwnFolder | None) -> None:
        """Keep *folder* as long as *name* is served of it; forget what was of the model before."""
        self._columns.pop(name, None)
        self._examples.pop(name, None)
        before = self._folders.pop(name, None)
        if folder is not None:
            self._folders[name] = folder
        if before is not None:
            before.close()

    # ── what has to be converted ──

    def _serve_offer(self, offer: Offer, name: str, wanted: bool | None) -> Served:
        folder = OwnFolder()
        path = Path(folder.name, _FILE)
        made = Converted(None, "convert=False")
        if wanted is not False and offer.export is not None:
            made = convert(offer, offer.export, path)
            if wanted is None and made.differs and not made.differs.is_slight:
                made = Converted(None, f"as ONNX it would differ by {made.differs}")
        elif wanted:
            made = Converted(None, f"{offer.kind} has no converter")
        if made.differs is not None:
            assert offer.export is not None
            numbers = f", in {offer.why_fp64}" if offer.why_fp64 else ""
            told = f"{offer.kind} as ONNX, by {offer.export.tool}{numbers}; largest difference on"
            if not made.differs.is_slight:
                warnings.warn(
                    f"{name} as ONNX differs from the original on {offer.rows} by {made.differs}; "
                    "serve the original with convert=False",
                    stacklevel=5,
                )
            return self._served_file(
                name, path, folder, f"{told} {offer.rows}: {made.differs}", made.differs
            )
        folder.close()
        if wanted:
            raise UsageError(f"{made.reason}; with convert=False it is served as a function")
        inputs = offer.exact or offer.inputs
        function = declared_model(offer.call, inputs, offer.outputs, loop=self._loop)
        function = replace(function, place="")
        self._register(ModelId(name, 1), function)
        reasons = [offer.why_fp64, made.reason if offer.export is not None else ""]
        because = f" ({'; '.join(filter(None, reasons))})" if any(reasons) else ""
        how = f"{offer.kind} as a function that calls {offer.calls}{because}"
        return Served(name, how, function.inputs, function.outputs)

    def _register(self, model: ModelId, function: FunctionModel) -> None:
        core = self._core()
        core.call(core.register, model, function)
        self._keep(model.name, None)


def _one_row(example: Mapping[str, Array], inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """The first row of *example*, as the *inputs* take it; nothing if they take more rows only."""
    rows = {}
    for spec in inputs:
        array = example[spec.name]
        rows[spec.name] = Tensor.cast(array[:1] if array.ndim else array, spec.datatype).array
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


def _expect_none(what: str, **given: Any) -> None:
    """Raise ``UsageError`` for options that *what* does not have."""
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option}= is not for {what}")
