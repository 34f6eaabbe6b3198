"""Models of rows: what makes a ``Servable`` of the methods of an estimator or a booster."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from workbench.client.coercion import tensors_of
from workbench.errors import InvalidRequest, UsageError, line_of
from workbench.model import ModelId, Signature, TensorSpec
from workbench.objects.hints import Hint
from workbench.objects.kinds import kind_of
from workbench.objects.rows import Rows
from workbench.objects.servable import Servable
from workbench.tensor import Array, Tensor, datatype_of

Method = Callable[[Any], Any]

_METHODS = {"probabilities": "predict_proba", "transformed": "transform"}


def tabular(
    thing: Any, calls: Mapping[str, Method], rows: Rows, outputs: Mapping[str, Hint]
) -> Servable:
    """*thing* as a model, whose outputs *calls* give of what *rows* are.

    *outputs*: what they are; if that is empty, it is seen in a run of the example. Raises
    ``UsageError`` where *thing* fails on the example.
    """
    kind = type(thing).__name__
    arrays_of = partial(_arrays, kind, rows)
    run = _TabularRun(kind, calls, rows, _configuration())
    example: dict[str, Array] = {}
    if rows.given is not None:
        try:
            example = arrays_of(rows.given)
            outputs = {name: _hint(answer) for name, answer in run.answers(example).items()}
        except InvalidRequest as error:
            raise UsageError(f"{kind} cannot predict the example: {error}") from error
        except Exception as error:  # whatever a library raises
            told = line_of(error)
            raise UsageError(f"{kind} cannot predict the example: {told}") from error
    return Servable(
        thing=thing,
        kind=kind,
        library=kind_of(thing),
        call=run,
        some=run.some,
        alike=rows.alike,
        calls=" and ".join(dict.fromkeys(_METHODS.get(name, "predict") for name in calls)),
        inputs=rows.inputs,
        outputs=outputs,
        rows=arrays_of,
        columns=rows.columns,
        example={name: array[:1] for name, array in example.items()},
    )


def _arrays(kind: str, rows: Rows, given: Any) -> dict[str, Array]:
    """The arrays by input of rows as the caller has them. Raises ``InvalidRequest``."""
    specs = {
        name: TensorSpec(name, hint.datatype, hint.shape, missing=hint.missing)
        for name, hint in rows.inputs.items()
    }
    signature = Signature("python", specs, {}, columns=rows.columns)
    tensors = tensors_of(ModelId(kind, 1), signature, given)
    return {name: tensor.array for name, tensor in tensors.items()}


class _TabularRun:
    """The methods of an object, called with the rows that arrays by input are.

    Each method gets rows of its own, since the one before may have changed those that it got. A
    ``ValueError`` is what the object says of its input: it becomes ``InvalidRequest``.
    """

    def __init__(
        self, kind: str, calls: Mapping[str, Method], rows: Rows, configuration: dict[str, Any]
    ) -> None:
        self._kind = kind
        self._calls = calls
        self._thing = rows.thing
        self._configuration = configuration

    def __call__(self, /, **arrays: Array) -> Mapping[str, Array]:
        return self.answers(arrays)

    def answers(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return self._answers(arrays, self._calls)

    def some(self, wanted: Sequence[str], arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The *wanted* outputs at least; a method of which none is wanted is not called."""
        of_one = {name: call for name, call in self._calls.items() if name in wanted}
        return self._answers(arrays, of_one if len(of_one) == len(wanted) else self._calls)

    def _answers(
        self, arrays: Mapping[str, Array], calls: Mapping[str, Method]
    ) -> dict[str, Array]:
        try:
            with _configured(self._configuration):
                rows = [self._thing(arrays)] * len(calls)
                rows[1:] = map(_copied, rows[1:])
                given = zip(calls.items(), rows, strict=True)
                found = {name: call(own) for (name, call), own in given}
        except ValueError as error:
            told = str(error).strip().split("\n")[0]
            raise InvalidRequest(f"{self._kind} refuses the rows: {told}") from error
        return dict(_by_output(found))


def _copied(rows: Any) -> Any:
    """A copy of *rows* with the same layout in memory, on which last bits may depend."""
    return rows.copy() if hasattr(rows, "toarray") else copy.copy(rows)


def _by_output(found: Mapping[str, Any]) -> Mapping[str, Array]:
    """The arrays by output: of several outputs, probabilities are one array each."""
    answers: dict[str, Array] = {}
    for name, answer in found.items():
        if isinstance(answer, list) and all(isinstance(each, np.ndarray) for each in answer):
            answers |= {f"{name}_{place}": np.asarray(each) for place, each in enumerate(answer)}
        else:
            answers[name] = np.asarray(answer.toarray() if hasattr(answer, "toarray") else answer)
    return answers


def _hint(answer: Array) -> Hint:
    """The output that *answer* is one of. Raises ``UsageError``, ``TypeError``."""
    if answer.dtype.kind in "iu":
        datatype = "INT64"
    elif answer.dtype.hasobject:
        datatype = Tensor.of(answer.tolist()).datatype if answer.size else "BYTES"
    else:
        datatype = datatype_of(answer)
    if not answer.ndim:
        raise UsageError("it gives one value for all rows: write a function around it")
    return Hint(datatype, (-1, *answer.shape[1:]))


def _configuration() -> dict[str, Any]:
    """The settings of ``sklearn.set_config`` in this thread, if any, hidden from others."""
    sklearn = sys.modules.get("sklearn")
    if sklearn is None:
        return {}
    here: dict[str, Any] = sklearn.get_config()
    with ThreadPoolExecutor(1) as other:
        return {} if other.submit(sklearn.get_config).result() == here else here


def _configured(configuration: dict[str, Any]) -> AbstractContextManager[Any]:
    if not configuration:
        return nullcontext()
    import sklearn

    context: AbstractContextManager[Any] = sklearn.config_context(**configuration)
    return context
