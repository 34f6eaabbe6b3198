"""Estimators and pipelines of scikit-learn, and all that predict as these do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench.conversion.difference import difference
from workbench.objects.hints import Hint
from workbench.objects.kinds import kind_of
from workbench.objects.near import parts
from workbench.objects.offer import Export, Offer
from workbench.conversion.onnx_outputs import with_outputs
from workbench.objects.rows import Rows, drawn_rows, is_table, rows_of
from workbench.errors import UsageError, line_of
from workbench.tensor import Array, Tensor, datatype_of

Call = Callable[[Any], Any]

_TIE = 1e-6  # between the two largest probabilities of a row
# Scikit-learn's default pattern of words, and its like; if *second*, no word of one letter.
_WORDS = re.compile(r"(\(\?u\))?(\\b)?\\w(?P<second>\\w)?\+(\\b)?")


class Converter(NamedTuple):
    """The library *tool*, which *cure* installs; *make* makes an ONNX model of what it takes."""

    tool: str
    cure: str
    make: Callable[[Mapping[str, Hint]], bytes]


def offer_of_estimator(estimator: Any, example: Any) -> Offer:
    """What *estimator*, which is fitted, can be served as. Raises ``UsageError``."""
    converter = Converter("skl2onnx", "serving-workbench[sklearn]", partial(_export, estimator))
    rows, fp64 = _rows(estimator, example), ""
    if _has_fine_splits(estimator):
        fp64 = "FP64, for rounding may move a number across a split of its trees"
    return tabular_offer(estimator, calls_of(estimator), rows, converter, fp64)


def _has_fine_splits(estimator: Any, *, is_first: bool = True) -> bool:
    """Whether it has trees that may decide otherwise on numbers which are FP32 before the trees.

    HistGradientBoosting has, and XGBoost and LightGBM where another step makes their numbers.
    """
    if type(estimator).__name__.startswith("HistGradientBoosting"):
        return True
    if not is_first and kind_of(estimator) in ("xgboost", "lightgbm"):
        return True
    steps = [step for _, step in getattr(estimator, "steps", ())]
    inner = [(each, is_first) for each in (*steps[:1], *parts(estimator))]
    inner += [(each, False) for each in steps[1:]]
    if hasattr(estimator, "final_estimator_"):  # of a stack
        inner.append((estimator.final_estimator_, False))
    return any(_has_fine_splits(each, is_first=first) for each, first in inner)


def tabular_offer(
    thing: object, calls: Mapping[str, Call], rows: Rows, converter: Converter, why_fp64: str = ""
) -> Offer:
    """What *thing* can be served as, whose outputs are made by *calls* of what *rows* are.

    Floats are FP32, unless *thing* itself answers otherwise when its example is rounded to that.
    With *why_fp64*, a reason, those of the inputs are FP64 in any case. A function that calls
    *thing* takes FP64: trees split at numbers of their data, so that the least rounding may change
    an answer. Raises ``UsageError`` where they fail on the example.
    """
    kind = type(thing).__name__
    try:
        answers = {name: call(rows.thing(rows.example)) for name, call in calls.items()}
    except Exception as error:  # whatever a library raises
        cure = "" if not rows.drawn else "; pass example=, some rows of its input"
        told = line_of(error)
        raise UsageError(f"{kind} cannot predict {rows.told}: {told}{cure}") from error
    if rows.drawn and (clear := _is_clear(answers)) is not None:
        rows, answers = rows.only(clear), {name: each[clear] for name, each in answers.items()}
    kept = [name for name, answer in answers.items() if isinstance(answer, np.ndarray)]
    if not kept:
        raise UsageError(f"{kind} gives no array: write a function around it, and serve that")
    hints = {name: _hint(answers[name]) for name in kept}
    right = {name: _array(answers[name], hints[name]) for name in kept}

    def call(**arrays: Array) -> Mapping[str, Array]:
        given = rows.thing(arrays)
        return {name: _array(calls[name](given), hints[name]) for name in kept}

    inputs = rows.inputs
    if why_fp64:
        inputs = _as_fp64(inputs)
    elif not _bears_rounding(rows, call, right):
        inputs, hints = _as_fp64(inputs), _as_fp64(hints)
        why_fp64 = f"FP64, for FP32 would change its answers on {rows.told}"
    write = partial(_write, converter.make, inputs, hints)
    export = Export(converter.tool, converter.cure, write)
    words = " and ".join(_method(name) for name in kept)
    columns = () if len(inputs) > 1 else fitted_columns(thing) if "X" in inputs else tuple(inputs)
    return Offer(
        kind,
        call,
        words,
        inputs,
        hints,
        rows.example,
        rows.told,
        export,
        columns,
        why_fp64,
        exact=_as_fp64(inputs),
    )


def _is_clear(answers: Mapping[str, Any]) -> Array | None:
    """Which rows are not halfway between two classes, where the least rounding decides.

    ``None`` where that cannot be told, or no row is.
    """
    found = answers.get("probabilities")
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.shape[1] < 2:
        return None
    second, first = np.sort(found, axis=1)[:, -2:].T
    clear: Array = first - second > _TIE
    return clear if clear.any() else None


def _bears_rounding(
    rows: Rows, call: Callable[..., Mapping[str, Array]], right: Mapping[str, Array]
) -> bool:
    """Whether *call* gives the *right* answers too when the numbers of *rows* are the inputs'."""
    narrow = [name for name, hint in rows.inputs.items() if hint.datatype == "FP32"]
    try:
        rounded = {name: Tensor.cast(rows.example[name], "FP32").array for name in narrow}
        if all(np.array_equal(rounded[n], rows.example[n], equal_nan=True) for n in narrow):
            return True
        return difference(right, call(**{**rows.example, **rounded})).is_slight
    except Exception:  # whatever a library raises, or a number is too large: the example was fine
        return False


def _as_fp64(hints: Mapping[str, Hint]) -> dict[str, Hint]:
    return {
        name: replace(hint, datatype="FP64") if hint.datatype == "FP32" else hint
        for name, hint in hints.items()
    }


def _write(
    make: Callable[[Mapping[str, Hint]], bytes],
    inputs: Mapping[str, Hint],
    outputs: Mapping[str, Hint],
    path: Path,
) -> None:
    """Write the model that *make* makes for *inputs*, with *outputs* as these are described."""
    columns = [hint.shape[1] if len(hint.shape) == 2 else None for hint in outputs.values()]
    path.write_bytes(with_outputs(make(inputs), outputs, columns))


def _export(estimator: Any, inputs: Mapping[str, Hint]) -> bytes:
    """The ONNX model of *estimator*, which takes *inputs*; if need be, all its numbers as floats.

    skl2onnx joins no columns of integers and of floats, as scikit-learn does.
    """
    try:
        return _converted(estimator, inputs)
    except ImportError:
        raise
    except Exception as error:  # whatever it raises
        floats = "FP64" if any(hint.datatype == "FP64" for hint in inputs.values()) else "FP32"
        numbers = {
            name: hint if hint.datatype == "BYTES" else replace(hint, datatype=floats)
            for name, hint in inputs.items()
        }
        if numbers == inputs:
            raise
        try:
            return _converted(estimator, numbers)
        except Exception:
            raise error from None


def _converted(estimator: Any, inputs: Mapping[str, Hint]) -> bytes:
    from skl2onnx import __max_supported_opset__, convert_sklearn
    from skl2onnx.common import data_types
    from sklearn.base import is_classifier

    from workbench.conversion.tree_converters import histogram_converters, register_boosted

    register_boosted()
    types: dict[str, Any] = {
        "FP32": data_types.FloatTensorType,
        "FP64": data_types.DoubleTensorType,
        "INT64": data_types.Int64TensorType,
        "BOOL": data_types.BooleanTensorType,
        "BYTES": data_types.StringTensorType,
    }
    taken = [(name, types[hint.datatype]([None, *hint.shape[1:]])) for name, hint in inputs.items()]
    opsets = {"": __max_supported_opset__, "ai.onnx.ml": 3}  # of 4, not every operator is written
    is_wide = any(hint.datatype == "FP64" for hint in inputs.values())
    options: dict[int, Any] = {id(each): _text_options(each) for each in _vectorizers(estimator)}
    if is_wide and is_classifier(estimator):
        options[id(estimator)] = {"zipmap": False}  # it takes FP32
    converters, calculators = histogram_converters()
    made = convert_sklearn(
        estimator,
        initial_types=taken,
        target_opset=opsets,
        options=options,
        custom_conversion_functions=converters,
        custom_shape_calculators=calculators,
    )
    _name_inputs(made.graph, list(inputs))
    content: bytes = made.SerializeToString()
    return content


def _vectorizers(estimator: Any) -> Iterator[Any]:
    """*estimator* and the parts of it that split texts into words."""
    if hasattr(estimator, "token_pattern"):
        yield estimator
    steps = ("steps", "transformers_", "transformer_list")
    named = [step[1] for name in steps for step in getattr(estimator, name, ())]
    for each in (*named, *parts(estimator)):
        yield from _vectorizers(each)


def _text_options(vectorizer: Any) -> dict[str, str]:
    """Options of skl2onnx, so that ONNX Runtime splits texts as *vectorizer* does.

    By default it needs the locale en_US, which most containers lack, and knows words of ASCII.
    """
    options = {"locale": "C.UTF-8"} if sys.platform == "linux" else {}
    words = _WORDS.fullmatch(vectorizer.token_pattern or "")
    if vectorizer.analyzer == "word" and words:
        options["tokenexp"] = rf"[\p{{L}}\p{{N}}_]{'{2,}' if words['second'] else '+'}"
    return options


def _name_inputs(graph: Any, names: list[str]) -> None:
    """Give the inputs of *graph* their *names*: skl2onnx writes ``a_b`` for ``a b``."""
    named = {each.name: name for each, name in zip(graph.input, names, strict=True)}
    for each in graph.input:
        each.name = named[each.name]
    for node in graph.node:
        node.input[:] = [named.get(name, name) for name in node.input]


def _rows(estimator: Any, example: Any) -> Rows:
    columns, by_column = fitted_columns(estimator) or None, _is_by_column(estimator)
    if example is not None:
        if is_table(example) and (used := _used_columns(estimator)) is not None:
            example = example[[column for column in example.columns if column in used]]
        return rows_of(example, by_column=by_column, columns=columns)
    count = n_features(estimator)
    if by_column:
        kind = type(estimator).__name__
        raise UsageError(f"{kind} chooses columns: pass example=, some rows of the table it takes")
    return drawn_rows(estimator, count, columns)


def fitted_columns(estimator: Any) -> list[str]:
    """The names of the columns that *estimator* was fitted to; none if these had no names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = getattr(estimator, "feature_names", None)  # of a booster of XGBoost
    return [] if names is None else [str(name) for name in names]


def n_features(estimator: Any) -> int:
    """How many columns *estimator* was fitted to. Raises ``UsageError``."""
    try:
        return int(estimator.n_features_in_)
    except AttributeError:
        pass
    except Exception as error:  # such as one that is not fitted, of XGBoost
        raise UsageError(f"{type(estimator).__name__} is not fitted: {error}") from None
    kind = type(estimator).__name__
    if not _is_fitted(estimator):
        raise UsageError(f"{kind} is not fitted: fit it first")
    raise UsageError(
        f"{kind} does not say what it takes: pass example=, some rows of its input, or a list of "
        "texts if it takes texts"
    )


def _is_fitted(estimator: Any) -> bool:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):  # or it has no fit
        return False
    return True


def _is_by_column(estimator: Any) -> bool:
    """Whether it, a step of it, or what a search found chooses columns by their names."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    steps = [step for _, step in getattr(estimator, "steps", ())]
    return type(estimator).__name__ == "ColumnTransformer" or any(map(_is_by_column, steps))


def _used_columns(estimator: Any) -> set[str] | None:
    """The columns that the ColumnTransformer at the beginning takes; ``None`` if not known."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    steps = getattr(estimator, "steps", None)
    if steps:
        return _used_columns(steps[0][1])
    used: set[str] = set()
    if type(estimator).__name__ != "ColumnTransformer" or not hasattr(estimator, "transformers_"):
        return None
    for _, step, chosen in estimator.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        names: list[Any] = [chosen] if isinstance(chosen, str | slice) else list(chosen)
        if not all(isinstance(name, str) for name in names):  # they are chosen by their places
            return None
        used.update(names)
    return used


def calls_of(estimator: Any) -> dict[str, Call]:
    """What makes each output of *estimator*."""
    from sklearn.base import is_classifier, is_regressor

    if is_classifier(estimator):
        calls = {"label": estimator.predict}
        if hasattr(estimator, "predict_proba"):
            calls["probabilities"] = estimator.predict_proba
        return calls
    if is_regressor(estimator):
        return {"prediction": estimator.predict}
    if any(base.__name__.endswith("Ranker") for base in type(estimator).__mro__):
        return {"score": estimator.predict}
    if hasattr(estimator, "predict"):
        return {"label": estimator.predict}
    if hasattr(estimator, "transform"):

        def transformed(rows: Any) -> Any:
            matrix = estimator.transform(rows)
            return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)

        return {"transformed": transformed}
    raise UsageError(
        f"{type(estimator).__name__} has neither predict nor transform: serve a function"
    )


def _method(output: str) -> str:
    named = {"probabilities": "predict_proba", "transformed": "transform"}
    return named.get(output, "predict")


def _hint(answer: Array) -> Hint:
    """An output's hint: floats are FP32, as a converter makes them, and integers INT64."""
    kind = answer.dtype.kind
    datatype = {"f": "FP32", "i": "INT64", "u": "INT64"}.get(kind) or datatype_of(answer)
    return Hint(datatype, (-1, *answer.shape[1:]))


def _array(answer: Array, hint: Hint) -> Array:
    """*answer* as the output of *hint*, but floats as they are: the server rounds them."""
    return answer if answer.dtype.kind == "f" else Tensor.cast(answer, hint.datatype).array
