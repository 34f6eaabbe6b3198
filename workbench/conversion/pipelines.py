"""Pipelines of transformers, as functions: texts in, labels and scores or JSON out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.conversion.hints import Hint
from workbench.conversion.offer import Offer
from workbench.errors import UsageError
from workbench.tensor import Array

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


def offer_of_pipeline(pipeline: Any, example: Any) -> Offer:
    """What *pipeline* can be served as. Raises ``UsageError`` where it does not take texts."""
    if example is not None:
        raise UsageError("example= is not for a pipeline of transformers: it takes texts")
    task = str(pipeline.task)
    scores = task == "text-classification"
    if not scores and not task.startswith(_TASKS):
        raise UsageError(
            f"a pipeline for {task!r} takes more than texts: write a function around it"
        )

    def call(text: Array) -> Mapping[str, Array]:
        answers = pipeline([each.decode() for each in text.tolist()])
        if not scores:
            return {"json": np.array([_json(answer) for answer in answers], object)}
        best = [answer[0] if isinstance(answer, list) else answer for answer in answers]
        return {
            "label": np.array([each["label"] for each in best], object),
            "score": np.array([each["score"] for each in best], np.float32),
        }

    outputs = {"label": _TEXT, "score": Hint("FP32", (-1,))} if scores else {"json": _TEXT}
    kind = type(pipeline).__name__
    return Offer(kind, call, "the pipeline", {"text": _TEXT}, outputs)


def _json(answer: object) -> str:
    """*answer* as JSON; numpy's numbers are Python's there."""
    return json.dumps(answer, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)
