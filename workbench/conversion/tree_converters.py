"""Trees that skl2onnx does not convert by itself: XGBoost, LightGBM and HistGradientBoosting."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.objects.kinds import kind_of

Convert = Callable[[Any, Any, Any], None]
Calculate = Callable[[Any], None]

_FLAGS = "nodes_missing_value_tracks_true"


def register_boosted() -> None:
    """Tell skl2onnx how onnxmltools converts the estimators of XGBoost and LightGBM.

    That is for the libraries which are imported, and for what nobody has told it yet. Without
    onnxmltools it is for none.
    """
    from skl2onnx.common import shape_calculator as shapes

    shapes_of = {
        "Classifier": shapes.calculate_linear_classifier_output_shapes,
        "Regressor": shapes.calculate_linear_regressor_output_shapes,
    }
    for library, prefix in (("xgboost", "XGB"), ("lightgbm", "LGBM")):
        convert = _of_onnxmltools(library)
        if convert is None:
            continue
        for kind, shape in shapes_of.items():
            model = getattr(sys.modules[library], prefix + kind)
            _register(model, _floats_out(shape), _floats_in(convert), is_classifier="C" in kind)


def _of_onnxmltools(library: str) -> Convert | None:
    if library not in sys.modules:
        return None
    try:
        if library == "xgboost":
            from onnxmltools.convert.xgboost.operator_converters import XGBoost

            return XGBoost.convert_xgboost  # type: ignore[no-any-return]
        from onnxmltools.convert.lightgbm.operator_converters import LightGbm

        return LightGbm.convert_lightgbm  # type: ignore[no-any-return]
    except ImportError:
        return None


def _register(model: type, shape: Any, convert: Convert, *, is_classifier: bool) -> None:
    from skl2onnx import get_model_alias, update_registered_converter

    try:
        get_model_alias(model)
    except RuntimeError:  # it is not known yet
        options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
        update_registered_converter(
            model,
            f"Workbench{model.__name__}",
            shape,
            convert,
            options=options if is_classifier else None,
        )


def _floats_out(calculate: Calculate) -> Calculate:
    """*calculate*, but the numbers of trees are floats: their operators make no doubles."""

    def calculated(operator: Any) -> None:
        from skl2onnx.common.data_types import FloatTensorType

        calculate(operator)
        output = operator.outputs[-1]
        output.set_type(FloatTensorType(output.type.shape))

    return calculated


def _floats_in(convert: Convert) -> Convert:
    """*convert* for a model without names of columns, whose input is cast to floats.

    XGBoost casts its input, too. It splits at numbers of its data, and a double may lie just below
    such a number whose float is equal to it.
    """

    def converted(scope: Any, operator: Any, container: Any) -> None:
        from skl2onnx.common._apply_operation import apply_cast
        from skl2onnx.common.data_types import FloatTensorType
        from skl2onnx.proto import onnx_proto

        (given,) = operator.inputs
        floats = scope.declare_local_variable("floats", FloatTensorType(given.type.shape))
        to = onnx_proto.TensorProto.FLOAT
        apply_cast(scope, given.full_name, floats.full_name, container, to=to)
        operator.inputs = [floats]
        operator.raw_operator = without_names(operator.raw_operator)
        convert(scope, operator, container)

    return converted


def without_names(model: Any) -> Any:
    """*model*, or one of XGBoost that has no names of columns.

    onnxmltools reads columns of these by their numbers.
    """
    if kind_of(model) != "xgboost":
        return model
    model = copy.deepcopy(model)
    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    booster.feature_names = None
    return model


def histogram_converters() -> tuple[dict[type, Convert], dict[type, Calculate]]:
    """Converters and shape calculators of scikit-learn's HistGradientBoosting estimators.

    They are skl2onnx's own, but onnx takes no booleans for their flags, and no doubles for their
    numbers where these are not tensors.
    """
    from skl2onnx.common import shape_calculator as shapes
    from skl2onnx.operator_converters import random_forest as own
    from sklearn.ensemble import HistGradientBoostingClassifier as Classifier
    from sklearn.ensemble import HistGradientBoostingRegressor as Regressor

    return {
        Classifier: _as_onnx_takes_it(own.convert_sklearn_random_forest_classifier),
        Regressor: _as_onnx_takes_it(own.convert_sklearn_random_forest_regressor_converter),
    }, {
        Classifier: _floats_out(shapes.calculate_linear_classifier_output_shapes),
        Regressor: _floats_out(shapes.calculate_linear_regressor_output_shapes),
    }


def _as_onnx_takes_it(convert: Callable[..., None]) -> Convert:
    def converted(scope: Any, operator: Any, container: Any) -> None:
        model, add = operator.raw_operator, container.add_node
        if getattr(model, "is_categorical_", None) is not None:
            raise ValueError("its splits by categories have no ONNX operator")
        if getattr(model, "loss", "") in ("poisson", "gamma"):
            raise ValueError(f"its loss {model.loss!r} is not written")

        def add_node(*args: Any, **attributes: Any) -> None:
            from onnx.numpy_helper import from_array

            for name, value in list(attributes.items()):
                if name == _FLAGS:
                    attributes[name] = [int(flag) for flag in value]
                elif getattr(value, "dtype", None) == np.float64:
                    attributes[f"{name}_as_tensor"] = from_array(attributes.pop(name))
            add(*args, **attributes)

        container.add_node = add_node
        try:
            convert(scope, operator, container, op_version=3)  # the first with such tensors
        finally:
            del container.add_node

    return converted
