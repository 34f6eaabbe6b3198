"""Converts objects to ONNX, and shows by the caller's rows whether the answers stay the same."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench.annexes.conversion.cases import Axes, Case, changed, given, of_sizes
from workbench.annexes.conversion.evidence import Run, compared
from workbench.annexes.conversion.graph import REFUSED, Refused, refuse
from workbench.annexes.conversion.report import FOUND, Report
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.errors import without_source
from workbench.errors import LoadFailed, UsageError, line_of
from workbench.model import ModelConfig, ModelId, ModelSource
from workbench.objects.hints import free_axes
from workbench.objects.servable import Servable
from workbench.tensor import Array, Tensor

TOLERANCE = 1e-4
"""The largest difference of two numbers, relative to the row, that a conversion may make."""

_ITSELF = "serve the object itself, without onnx="
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_SHOWN_CHARS = 160  # characters of another library's error

WriteOnnx = Callable[[Servable, Mapping[str, Array], Path], tuple[int, ...]]
"""Writes the model of rows like some arrays; gives sizes at which it may go another way."""


class _Tool(NamedTuple):
    """The library that converts; *extra* of this package installs it and the *libraries*."""

    name: str
    extra: str
    libraries: tuple[str, ...]


_TOOLS = {
    "sklearn": _Tool("skl2onnx", "sklearn", ("scikit-learn", "skl2onnx")),
    "xgboost": _Tool("onnxmltools", "boost", ("xgboost", "onnxmltools")),
    "lightgbm": _Tool("onnxmltools", "boost", ("lightgbm", "onnxmltools")),
    "torch": _Tool("torch.onnx", "torch", ("torch", "onnxscript")),
}
"""By the library that an object comes from."""


def convert(
    servable: Servable,
    check: Any,
    path: Path,
    *,
    tolerance: float | None = None,
    anyway: bool = False,
) -> Report:
    """Write *servable* as an ONNX model to *path*, and its report beside it.

    The conversion is compared with the object on the rows of *check*. Raises ``UsageError`` where
    there is no converter, or no rows, and, unless *anyway*, if a label differs, a number by more
    than the *tolerance*, or a row is refused by one of the two alone.
    """
    tool, kind = _TOOLS.get(servable.library), servable.kind
    if tool is None:
        raise UsageError(f"{kind} has no converter to ONNX: {_ITSELF}")
    sized = servable.library == "torch"  # answers may depend on the count of rows, and on lengths
    if check is None:
        raise UsageError(
            f"converting {kind} to ONNX needs check=, rows like those it will be asked with, on "
            "which the answers are compared"
        )
    tolerance = TOLERANCE if tolerance is None else tolerance
    if not _is_bound(tolerance):
        raise UsageError(f"tolerance= is a number from 0, relative to a row, not {tolerance!r}")
    free, axes = free_axes(servable.inputs), free_axes(servable.outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the comparison says what matters
        case = given(_rows(servable, check), free)

        def original(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
            return servable.call(**arrays)

        _check_answered(kind, original, case)
        limits = _written(tool, servable, case, path)
        _refuse_alike(original, case, path, sized=sized)
        cases = _cases(servable, check, case, free, limits, sized=sized)
        with _loaded(kind, tool.name, path) as converted:
            evidence = compared(original, converted, cases, tolerance, axes, to_the_end=anyway)
    report = Report(
        kind,
        tool.name,
        case.count,
        **{name: getattr(evidence, name) for name in FOUND},
        anyway=anyway,
        first="" if evidence.first is None else str(evidence.first),
        versions=_versions(tool),
    )
    if not (anyway or report.is_right):
        raise UsageError(
            f"{kind} is not converted to ONNX: {report.first}; {report.found}: {_ITSELF}, or "
            "accept that with tolerance= or anyway=True"
        )
    report.write(path.parent)
    return report


def _is_bound(tolerance: float) -> bool:
    try:
        return bool(0 <= tolerance < np.inf)
    except (TypeError, ValueError):  # a person may give anything
        return False


def _rows(servable: Servable, check: Any) -> dict[str, Array]:
    try:
        arrays = servable.rows(check)
    except Exception as error:  # whatever a library raises
        told = line_of(error)
        raise UsageError(f"check= is not rows that {servable.kind} takes: {told}") from error
    if not all(array.size for array in arrays.values()):
        raise UsageError("check= has no rows")
    return {name: np.asarray(arrays[name]) for name in servable.inputs if name in arrays}


def _check_answered(kind: str, original: Run, case: Case) -> None:
    refusal: Exception | None = None
    for row in range(case.count):
        try:
            original(case.batch(np.array([row])))
        except Exception as error:  # whatever a library raises
            refusal = error
        else:
            return
    raise UsageError(f"{kind} refuses all rows of check=: {line_of(refusal or ValueError())}")


def _write_of(library: str) -> WriteOnnx:
    match library:
        case "sklearn":
            from workbench.annexes.conversion import sklearn

            return sklearn.write
        case "torch":
            from workbench.annexes.conversion import modules

            return modules.write
    from workbench.annexes.conversion import boosted

    return boosted.write


def _written(tool: _Tool, servable: Servable, case: Case, path: Path) -> tuple[int, ...]:
    kind = servable.kind
    try:
        return _write_of(servable.library)(servable, case.arrays, path)
    except ImportError as error:
        missing = error.name or tool.name
        cure = f"pip install 'serving-workbench[{tool.extra}]'"
        raise UsageError(f"converting {kind} to ONNX needs {missing}: {cure}") from error
    except Exception as error:  # whatever a converter raises
        raise UsageError(
            f"{tool.name} cannot convert {kind}: {_short(error)}; {_ITSELF}"
        ) from error


def _short(error: BaseException) -> str:
    """The beginning of what the first cause of *error* says, without colours of a terminal."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(without_source(_COLOUR.sub("", str(error))).split()) or type(error).__name__
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


# ── what is compared ──


def _cases(
    servable: Servable, check: Any, case: Case, free: Axes, limits: tuple[int, ...], *, sized: bool
) -> Iterator[Case]:
    yield case
    if servable.columns or len(servable.inputs) > 1:
        yield from _swapped(servable, check, free)
    if sized:
        yield from of_sizes(case, free, limits)
    yield from changed(case)


def _swapped(servable: Servable, check: Any, free: Axes) -> Iterator[Case]:
    """The rows with their columns in the reverse order, where these have names."""
    if hasattr(check, "columns") and getattr(check, "ndim", 0) == 2:
        swapped: Any = check[list(check.columns)[::-1]]
    elif isinstance(check, Mapping):
        swapped = dict(reversed([*check.items()]))
    elif isinstance(check, Sequence) and all(isinstance(each, Mapping) for each in check):
        swapped = [dict(reversed(each.items())) for each in check]
    else:
        return
    yield given(_rows(servable, swapped), free, "with its columns in another order")


# ── rows that the original refuses ──


def _refuse_alike(original: Run, case: Case, path: Path, *, sized: bool) -> None:
    """Have the model at *path* refuse numbers that *original* refuses, in the same columns.

    Of estimators these are NaN and infinity; of modules, negative numbers of what is an index,
    which ONNX counts from the end.
    """
    import onnx

    refused = _refused(original, case, sized=sized)
    if not refused:
        return
    model = onnx.load(path, load_external_data=False)
    kinds = {each.name: each.type.tensor_type.elem_type for each in model.graph.input}
    right = onnx.TensorProto.INT64 if sized else onnx.TensorProto.FLOAT
    refuse(model, {name: each for name, each in refused.items() if kinds[name] == right})
    path.write_bytes(model.SerializeToString())


def _refused(original: Run, case: Case, *, sized: bool) -> Refused:
    row = next(i for i in range(case.count) if _takes(original, case.batch(np.array([i]))))
    arrays = case.batch(np.array([row]))
    found: dict[str, dict[str, list[bool]]] = {}
    for name, array in arrays.items():
        if array.dtype.kind != ("i" if sized else "f"):
            continue
        columns = range(1 if sized else array.size)  # of a module, any size is that of all
        for kind, value in REFUSED.items():
            if (value < 0) is sized:
                refused = _columns_refused(original, arrays, name, value, columns)
                if refused:
                    found.setdefault(name, {})[kind] = [each in refused for each in columns]
    return found


def _columns_refused(
    original: Run, arrays: Mapping[str, Array], name: str, value: float, columns: range
) -> set[int]:
    """The *columns* of an input in which *original* does not take *value*."""
    array = arrays[name].copy()
    array.reshape(-1)[columns.start : columns.stop] = value
    if _takes(original, {**arrays, name: array}):
        return set()
    if len(columns) == 1:
        return set(columns)
    half = len(columns) // 2
    parts = (columns[:half], columns[half:])
    return set().union(*(_columns_refused(original, arrays, name, value, e) for e in parts))


def _takes(original: Run, arrays: Mapping[str, Array]) -> bool:
    try:
        original(arrays)
    except Exception:  # whatever a library raises
        return False
    return True


# ── the conversion, as the server will run it on the CPU ──


@contextmanager
def _loaded(kind: str, tool: str, path: Path) -> Iterator[Run]:
    model = ModelSource(ModelId("conversion", 1), ModelConfig("conversion"), path)
    try:
        session: Any = OnnxBackend().load(model)
    except LoadFailed as error:
        told = _short(error)
        raise UsageError(f"what {tool} makes of {kind} does not load: {told}; {_ITSELF}") from error
    names = tuple(session.signature.outputs)

    def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
        specs = session.signature.inputs
        tensors = {name: Tensor.cast(arrays[name], spec.datatype) for name, spec in specs.items()}
        found = session.run(tensors, names)
        return {name: tensor.array for name, tensor in zip(names, found, strict=True)}

    try:
        yield run
    finally:
        session.close()


def _versions(tool: _Tool) -> dict[str, str]:
    names = (*tool.libraries, "onnx", "onnxruntime", "onnxruntime-gpu", "numpy")
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # such as xgboost-cpu, or one of onnxruntime's two
            continue
    return found
