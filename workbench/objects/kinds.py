"""The kind of a thing, told by the names of its classes: no library is imported for that."""

from __future__ import annotations

import re

_KINDS = {
    "onnx.onnx_ml_pb2.ModelProto": "onnx",
    "xgboost.core.Booster": "xgboost",
    "xgboost.sklearn.XGBModel": "xgboost",
    "lightgbm.basic.Booster": "lightgbm",
    "lightgbm.sklearn.LGBMModel": "lightgbm",
    "sklearn.base.BaseEstimator": "sklearn",
    "transformers.pipelines.base.Pipeline": "transformers",
    "torch.nn.modules.module.Module": "torch",
    "torch.export.exported_program.ExportedProgram": "torch program",
}


def kind_of(thing: object) -> str:
    """One of the kinds above; "" if it is none of them."""
    for base in type(thing).__mro__:
        kind = _KINDS.get(f"{base.__module__}.{base.__qualname__}")
        if kind:
            return kind
    return ""


def name_of(thing: object) -> str:
    """The name of a model made of *thing*: ``logistic_regression`` of a ``LogisticRegression``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(thing).__name__)
    return words.lower()
