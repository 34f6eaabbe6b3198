"""Pipelines of transformers, as functions: texts in, labels and scores or JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from workbench.errors import UsageError, class_and_line_of
from workbench.objects.hints import Hint
from workbench.objects.servable import Servable
from workbench.tensor import Array, Tensor

_TEXT = Hint("BYTES", (-1,))
_TASKS = (
    "feature-extraction",
    "fill-mask",
    "summarization",
    "text-generation",
    "text2text-generation",
    "token-classification",
    "translation",
)


def servable_pipeline(pipeline: Any, example: Any) -> Servable:
    """*pipeline* as a model. Raises ``UsageError`` where it does not take texts."""
    if example is not None:
        raise UsageError(
            "example= is not for a pipeline of transformers, which takes texts: leave it out"
        )
    task = str(pipeline.task)
    scores = task == "text-classification"
    if not scores and not task.startswith(_TASKS):
        raise UsageError(
            f"a pipeline for {task!r} takes more than texts: write a function around it"
        )

    def answers(texts: list[str]) -> list[Any]:
        """One answer a text; of a list with one text only, fill-mask would return its parts."""
        return list(pipeline(text for text in texts)) if texts else []

    kind = type(pipeline).__name__
    if scores:
        outputs, read = _labels(kind, answers)
    else:
        outputs, read = {"json": _TEXT}, _as_json

    def call(text: Array) -> Mapping[str, Array]:
        return read(answers([each.decode() for each in text.tolist()]))

    return Servable(
        thing=pipeline,
        kind=kind,
        library="transformers",
        call=call,
        calls="the pipeline",
        inputs={"text": _TEXT},
        outputs=outputs,
        rows=lambda texts: {"text": Tensor.of(texts, "BYTES").array},
        steady=False,
    )


def _as_json(answers: list[Any]) -> Mapping[str, Array]:
    """*answers* as JSON; numpy's numbers are Python's there."""
    texts = [json.dumps(answer, default=_plain, ensure_ascii=False) for answer in answers]
    return {"json": np.array(texts, object)}


def _labels(
    kind: str, answers: Callable[[list[str]], list[Any]]
) -> tuple[Mapping[str, Hint], Callable[[list[Any]], Mapping[str, Array]]]:
    """The outputs of a classifier, and what makes them of its answers.

    They are the best label and its score, or several where the pipeline's ``top_k`` says so.
    Raises ``UsageError`` if it fails on a text.
    """
    try:
        count = len(_best(answers(["text"])[0]))
    except Exception as error:  # whatever a pipeline raises
        told = class_and_line_of(error)
        raise UsageError(f"{kind}, called with a text, raised {told}") from error
    shape = (-1,) if count == 1 else (-1, count)

    def read(answers: list[Any]) -> Mapping[str, Array]:
        best = [each for answer in answers for each in _best(answer)]
        return {
            "label": np.array([each["label"] for each in best], object).reshape(shape),
            "score": np.array([each["score"] for each in best], np.float32).reshape(shape),
        }

    return {"label": Hint("BYTES", shape), "score": Hint("FP32", shape)}, read


def _best(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def _plain(value: Any) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)
