"""Objects described as models, for tests of conversions."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from workbench.objects.hints import Hint, datatype_named
from workbench.objects.servable import Servable

TYPES = {"f": "FP64", "i": "INT64", "u": "INT64", "b": "BOOL", "O": "BYTES", "U": "BYTES"}


def _datatype(array: Any) -> str:
    return "FP32" if array.dtype == np.float32 else TYPES[array.dtype.kind]


def _read(array: Any) -> Any:
    if array.dtype.kind != "O":
        return array
    flat = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    read = np.empty(len(flat), object)
    read[:] = flat
    return read.reshape(array.shape)


def _servable(  # noqa: PLR0917
    thing: Any,
    library: str,
    calls: Mapping[str, Callable[[Any], Any]],
    inputs: Mapping[str, Hint],
    rows: Callable[[Any], dict[str, Any]],
    made: Callable[[dict[str, Any]], Any],
    sample: Any,
    columns: tuple[str, ...] = (),
) -> Servable:
    def call(**arrays: Any) -> dict[str, Any]:
        given = made(arrays)
        return {name: np.asarray(each(given)) for name, each in calls.items()}

    outputs = {}
    for name, array in call(**rows(sample)).items():
        outputs[name] = Hint(TYPES[array.dtype.kind], (-1, *array.shape[1:]))
    kind = type(thing).__name__
    return Servable(thing, kind, library, call, "predict", inputs, outputs, rows, columns)


def calls_of(model: Any) -> dict[str, Callable[[Any], Any]]:
    if hasattr(model, "predict_proba"):
        return {"label": model.predict, "probabilities": model.predict_proba}
    if hasattr(model, "predict"):
        return {"label" if hasattr(model, "classes_") else "prediction": model.predict}

    def transform(rows: Any) -> Any:
        found = model.transform(rows)
        return found.toarray() if hasattr(found, "toarray") else found

    return {"transformed": transform}


def of_matrix(
    model: Any,
    sample: Any,
    library: str = "sklearn",
    columns: tuple[str, ...] = (),
    calls: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Servable:
    """A model of a matrix; with *columns* it is fitted to a table of these."""
    import pandas as pd

    def rows(given: Any) -> dict[str, Any]:
        if columns and hasattr(given, "columns"):
            given = given[list(columns)]
        return {"X": np.asarray(given, np.float64)}

    def made(arrays: dict[str, Any]) -> Any:
        return pd.DataFrame(arrays["X"], columns=list(columns)) if columns else arrays["X"]

    width = np.asarray(sample).shape[1]
    inputs = {"X": Hint("FP64", (-1, width))}
    return _servable(model, library, calls or calls_of(model), inputs, rows, made, sample, columns)


def of_texts(model: Any, texts: list[str]) -> Servable:
    def rows(given: Any) -> dict[str, Any]:
        return {"text": np.array([each.encode() for each in given], object)}

    inputs = {"text": Hint("BYTES", (-1,))}
    return _servable(
        model, "sklearn", calls_of(model), inputs, rows, lambda a: _read(a["text"]), texts
    )


def of_table(model: Any, table: Any) -> Servable:
    """A model of a table with texts: one input a column."""
    import pandas as pd

    kinds = {
        name: "O" if table[name].dtype.kind not in "biuf" else table[name].dtype.kind
        for name in table
    }

    def rows(given: Any) -> dict[str, Any]:
        found = {}
        for name, kind in kinds.items():
            values = given[name].to_numpy()
            if kind == "O":
                values = np.array(
                    [each.encode() if isinstance(each, str) else None for each in values], object
                )
            found[name] = values.reshape(-1, 1)
        return found

    def made(arrays: dict[str, Any]) -> Any:
        return pd.DataFrame({name: _read(arrays[name]).reshape(-1) for name in kinds})

    inputs = {name: Hint(TYPES[kind], (-1, 1)) for name, kind in kinds.items()}
    return _servable(model, "sklearn", calls_of(model), inputs, rows, made, table)


def of_module(
    module: Any, example: Any, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Servable:
    """A module in eval mode; *shapes* are those of its inputs with -1 for any size."""
    import inspect

    from workbench.objects.modules import servable_module

    values = example if isinstance(example, tuple) else (example,)
    given = dict(zip(inspect.signature(module.forward).parameters, values, strict=False))
    declared = {n: Hint(str(datatype_named(given[n].dtype)), s) for n, s in (shapes or {}).items()}
    return servable_module(module.eval(), example, declared)
