"""What a served object answers, beside what the object answers itself."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from workbench import Workbench
from workbench.errors import InvalidRequest, RunFailed

METHODS = {
    "label": "predict",
    "prediction": "predict",
    "score": "predict",
    "probabilities": "predict_proba",
    "transformed": "transform",
}
SIZES = (1, 2, 7, 33, 64)  # of the requests that ask for all rows


def own_answers(model: Any, outputs: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """What the methods of *model* answer, by the names of the *outputs*."""
    found = {}
    for name in outputs:
        method, _, place = name.partition("_")
        answer = getattr(model, METHODS[method])(rows)
        answer = answer[int(place)] if place else answer
        found[name] = answer.toarray() if hasattr(answer, "toarray") else np.asarray(answer)
    return found


def blocks(rows: Any) -> Iterator[Any]:
    """*rows* in requests of the sizes above, one after the other."""
    begin = place = 0
    while begin < len(rows):
        size = SIZES[place % len(SIZES)]
        block = slice(begin, begin + size)
        yield rows.iloc[block] if hasattr(rows, "iloc") else rows[block]
        begin, place = begin + size, place + 1


def as_given(wb: Workbench, name: str, rows: Any) -> dict[str, Any]:
    answer = wb.infer(name, rows)
    return dict(answer) if isinstance(answer, Mapping) else {only(wb, name): answer}


def only(wb: Workbench, name: str) -> str:
    (output,) = wb[name].outputs
    return output


def check_equal(right: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    """Each number has the same bits, each text and label is the same, of the same kind."""
    assert right.keys() == got.keys()
    for name, expected in right.items():
        found = np.asarray(got[name])
        assert found.shape == expected.shape, name
        if expected.dtype.kind == "f":
            wide = expected.astype(found.dtype)
            np.testing.assert_array_equal(found, wide, name)
            assert np.array_equal(np.signbit(found), np.signbit(wide)) or np.isnan(wide).any()
        elif expected.dtype.kind == "b":
            assert found.dtype.kind == "b"
            np.testing.assert_array_equal(found, expected, name)
        else:
            assert found.tolist() == expected.tolist(), name


def check_exact(wb: Workbench, name: str, model: Any, rows: Any) -> int:
    """The model *name* answers each block of *rows* as *model* does, or refuses it as that does.

    Returns how many rows were answered.
    """
    answered = 0
    outputs = wb[name].outputs
    for block in blocks(rows):
        try:
            right = own_answers(model, outputs, block)
        except Exception as error:  # whatever a library raises
            told = str(error).strip().split("\n")[0]
            with pytest.raises((InvalidRequest, RunFailed), match=re.escape(told)):
                wb.infer(name, block)
            continue
        check_equal(right, as_given(wb, name, block))
        answered += len(block)
    return answered
