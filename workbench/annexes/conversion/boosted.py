"""Models of XGBoost and LightGBM as ONNX, by onnxmltools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.annexes.conversion.graph import name_columns, with_outputs
from workbench.annexes.conversion.sklearn import without_names
from workbench.errors import UsageError
from workbench.objects.servable import Servable
from workbench.tensor import Array


def write(servable: Servable, _: Mapping[str, Array], path: Path) -> tuple[int, ...]:
    """Write *servable*, an estimator or a booster, as a model at *path*."""
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    hints = list(servable.inputs.items())
    if len(hints) != 1 or hints[0][1].datatype not in ("FP32", "FP64"):
        raise UsageError("it converts models of one matrix of numbers only")
    ((name, hint),) = hints
    taken = [(name, FloatTensorType([None, hint.shape[1]]))]
    convert = getattr(onnxmltools, f"convert_{servable.library}")
    model = with_outputs(
        convert(without_names(servable.thing), initial_types=taken), servable.outputs
    )
    name_columns(model, servable.columns)
    path.write_bytes(model.SerializeToString())
    return ()
