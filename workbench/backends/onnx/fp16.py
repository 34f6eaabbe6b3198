"""A model that computes in fp16, made of one that computes in fp32; for a process of its own.

What goes in and comes out stays as it is, and so do operators that fp16 is not for. The
answers differ: by a thousandth a rounding, of which a deep model makes many. So the
converted model is tried beside the original (``alike``), on made-up inputs: whether its
answers do for the real ones, only those who ask for fp16 know.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench.backends.onnx.errors import first_line
from workbench.backends.onnx.header import OnnxFile, read_onnx_file
from workbench.backends.onnx.values import made_up
from workbench.backends.onnx_tiers.folder import MODEL, WEIGHTS
from workbench.errors import LoadFailed
from workbench.tensor import Array

# Of a number itself, plus of the largest one beside it. Twenty times what one rounding
# takes: a deep model passes, one that is broken, or leaves the range of fp16, does not.
_CLOSE = 0.02
_SMALL_NBYTES = 1024  # of a weight, which stays in the model
_TRIED = "tried.onnx"


def write_converted(
    file: OnnxFile,
    folder: Path,
    to_fp16: Callable[..., Any],
    load: Callable[[OnnxFile], Any],
) -> None:
    """Write *file* into *folder*, converted by *to_fp16*, ONNX Runtime's own converter.

    Both are made sessions of by *load*, as they are, and tried. Raises ``LoadFailed``.
    """
    try:
        _convert(file, folder, to_fp16)
        original, converted = load(file), load(read_onnx_file(_as_on_a_gpu(folder)))
    except Exception as error:  # those of onnx and ONNX Runtime share no base below Exception
        raise LoadFailed(f"it cannot be converted: {first_line(error)}") from error
    try:
        far = _far_outputs(original, converted)
    except Exception as error:  # the same
        raise LoadFailed(f"it cannot be tried on made-up inputs: {first_line(error)}") from error
    (folder / _TRIED).unlink()
    if far:
        raise LoadFailed(f"its output {far[0]!r} would be too far from what it is in fp32")


def alike(wanted: Array, found: Array) -> bool:
    """Whether *found*, computed in fp16, is near enough to *wanted*; what is no float is equal."""
    if wanted.dtype.kind != "f":
        return np.array_equal(wanted, found)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    return wanted.shape == found.shape and np.allclose(
        found, wanted, rtol=_CLOSE, atol=_CLOSE * largest, equal_nan=True
    )


def _as_on_a_gpu(folder: Path) -> Path:
    """A copy of the model in *folder* that rounds to fp16 after each operator, as a GPU does.

    On the CPU ONNX Runtime 1.31 computes in fp32 from one operator to the next, where
    nothing overflows. What it does not compute, but only moves, is in fp16.
    """
    import onnx
    from onnx.helper import make_node
    from onnx.shape_inference import infer_shapes_path

    path = folder / _TRIED
    infer_shapes_path(str(folder / MODEL), str(path))
    model = onnx.load(str(path), load_external_data=False)
    float16 = onnx.TensorProto.FLOAT16
    known = model.graph.value_info
    halves = {value.name for value in known if value.type.tensor_type.elem_type == float16}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in halves:
                exact, rounded = f"{name}/exact", f"{name}/rounded"
                node.output[index] = exact
                # A single one would be taken along into fp32.
                nodes.append(make_node("Identity", [exact], [rounded]))
                nodes.append(make_node("Identity", [rounded], [name]))
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    onnx.save(model, str(path))
    return path


def _far_outputs(original: Any, converted: Any) -> list[str]:
    """The outputs of *converted* that are not those of *original*, nor near them."""
    names = [given.name for given in original.get_outputs()]
    far = []
    for size in (1, 3):
        feed = made_up(original.get_inputs(), size)
        for name, wanted, found in zip(
            names, original.run(names, feed), converted.run(names, feed), strict=True
        ):
            if not alike(wanted, found):
                far.append(name)
    return far


def _convert(file: OnnxFile, folder: Path, to_fp16: Callable[..., Any]) -> None:
    import onnx
    from onnx.external_data_helper import load_external_data_for_model
    from onnx.shape_inference import infer_shapes_path

    inferred = folder / "inferred.onnx"
    infer_shapes_path(str(file.path), str(inferred))  # by path, for a model may have over 2 GB
    model = onnx.load(str(inferred), load_external_data=False)
    inferred.unlink()
    load_external_data_for_model(model, str(file.path.parent))
    _name_nodes(model.graph.node)
    converted = to_fp16(model, keep_io_types=True, disable_shape_infer=True)
    onnx.save_model(
        converted,
        str(folder / MODEL),
        save_as_external_data=True,
        location=WEIGHTS,
        size_threshold=_SMALL_NBYTES,
    )


def _name_nodes(nodes: Any) -> None:
    """Give each of the *nodes* a name of its own, which the converter presumes."""
    for index, node in enumerate(nodes):
        node.name = f"{node.name}.{index}"
