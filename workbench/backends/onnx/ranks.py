"""The shapes of inputs and outputs whose number of dimensions an ONNX file does not declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.backends.onnx import runtime
from workbench.backends.onnx.header.file import OnnxFile, read_outline
from workbench.backends.onnx.header.graph import ValueInfo
from workbench.backends.onnx.options import session_options
from workbench.model import EngineOptions

_Dims = tuple[int | str | None, ...]


def ranked(file: OnnxFile) -> OnnxFile:
    """The header *file*, with the shapes that ONNX Runtime infers where it declares no rank.

    Inferring takes no memory for weights. A shape stays unknown if ONNX Runtime has none.
    Raises ``LoadFailed`` if the file can no longer be read.
    """
    infos = (*file.inputs, *file.outputs, *file.defaults)
    if not any(map(_lacks_rank, infos)):
        return file
    shapes = _inferred(read_outline(file.path))
    inputs, outputs, defaults = (
        tuple(_ranked(info, shapes) for info in infos)
        for infos in (file.inputs, file.outputs, file.defaults)
    )
    return replace(file, inputs=inputs, outputs=outputs, defaults=defaults)


def _lacks_rank(info: ValueInfo) -> bool:
    return info.dims is None and info.kind == "tensor"


def _ranked(info: ValueInfo, shapes: Mapping[str, _Dims]) -> ValueInfo:
    if not _lacks_rank(info):
        return info
    return replace(info, dims=shapes.get(info.name) or None)  # () is a scalar or unknown


def _inferred(model: bytes) -> dict[str, _Dims]:
    """The shapes of inputs and outputs by ONNX Runtime; none if it cannot load *model*."""
    options = session_options(runtime.engine(), wanted=EngineOptions(optimization="none"))
    try:
        session: Any = runtime.new_session(model, options)
    except Exception:  # ONNX Runtime's share no base; the load of the file tells what is wrong
        return {}
    return {arg.name: tuple(arg.shape) for arg in (*session.get_inputs(), *session.get_outputs())}
