"""The inputs and outputs of an ONNX model: those of its file, narrowed by its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from workbench.backends.onnx.header.file import OnnxFile
from workbench.backends.onnx.header.graph import NO_SEQUENCE, ValueInfo
from workbench.backends.onnx.values import DATATYPES
from workbench.errors import LoadFailed
from workbench.image_forms import image_forms
from workbench.model import Batching, ModelConfig, ModelId, ModelSource, Signature, TensorSpec
from workbench.rows import columns_in

PLATFORM = "onnxruntime_onnx"

_COMPLETED = 4  # Triton's default for max_batch_size


def onnx_signature(source: ModelSource, file: OnnxFile) -> Signature:
    """The signature of the model in *file*, as *source* configures it.

    Raises ``LoadFailed`` for a datatype that V2 does not have, a model that cannot be run from
    Python, or a configuration that contradicts the file.
    """
    model, config = source.id, completed(source.config, file)
    wanted, asked = (_known(specs, config) for specs in (config.inputs, config.outputs))
    needed = {info.name: _spec(model, "input", info, wanted) for info in file.inputs}
    defaults = {i.name: _spec(model, "input", i, wanted) for i in file.defaults if i.name in wanted}
    outputs = {
        info.name: _spec(model, "output", info, asked)
        for info in file.outputs
        if info.kind == "tensor" or not asked or info.name in asked
    }
    taken = _taken(model, needed, defaults, config.inputs)
    given = _configured(model, "output", outputs, config.outputs) or outputs
    _check_runnable(model, taken, given)
    batched = _batched(model, config, needed | defaults, {n: outputs[n] for n in given})
    forms = image_forms(model, taken, config.parameters)
    is_matrix = [spec.shape for spec in taken.values()] == [(-1, len(file.columns))]
    columns = columns_in(config.parameters, taken) or (file.columns if is_matrix else ())
    return Signature(PLATFORM, taken, given, batched, config.labels, forms, columns)


def completed(config: ModelConfig, file: OnnxFile) -> ModelConfig:
    """The *config* of the model in *file*; if it has dims without a batch, with batches of 4.

    So Triton completes a configuration that has only its inputs, or only its outputs, if the first
    dimension of each tensor is open. Dims with the batch stay as they are, with any number of rows.
    """
    given = (*config.inputs, *config.outputs)
    if config.max_batch_size or not given or (config.inputs and config.outputs):
        return config
    dims = {info.name: info.dims or (0,) for info in (*file.inputs, *file.outputs)}
    if any(isinstance(first, int) for first, *_ in dims.values()):
        return config
    for spec in given:
        if len(dims.get(spec.name, ())) != len(spec.as_the_model_has_it.shape) + 1:
            return config
    return replace(
        config,
        max_batch_size=_COMPLETED,
        inputs=tuple(map(_in_batches, config.inputs)),
        outputs=tuple(map(_in_batches, config.outputs)),
        batching=config.batching or Batching(),
    )


def _in_batches(spec: TensorSpec) -> TensorSpec:
    reshape = None if spec.reshape is None else (-1, *spec.reshape)
    return replace(spec, shape=(-1, *spec.shape), reshape=reshape)


def _known(specs: Iterable[TensorSpec], config: ModelConfig) -> dict[str, TensorSpec]:
    """The *specs* of *config*, as the model has them.

    Dims of [-1] are those that this server tells of a tensor of any rank.
    """
    inside = {spec.name: spec.as_the_model_has_it for spec in specs}
    return {
        name: replace(spec, any_rank=spec.shape == (-1,) and not config.max_batch_size)
        for name, spec in inside.items()
    }


def _spec(
    model: ModelId, what: str, info: ValueInfo, configured: Mapping[str, TensorSpec]
) -> TensorSpec:
    """The tensor as the file declares it; if that has no rank, with the dims *configured*."""
    if info.kind != "tensor" or info.elem_type not in DATATYPES:
        kind = info.kind if info.kind != "tensor" else f"tensor of ONNX type {info.elem_type}"
        why = NO_SEQUENCE if info.kind == "sequence" else "which V2 cannot carry"
        raise LoadFailed(f"{what} {info.name!r} of {model} is a {kind}, {why}")
    datatype = DATATYPES[info.elem_type]
    if info.dims is not None:
        shape = tuple(dim if isinstance(dim, int) else -1 for dim in info.dims)
        return TensorSpec(info.name, datatype, shape)
    known = configured.get(info.name, TensorSpec(info.name, datatype, (-1,), any_rank=True))
    return TensorSpec(info.name, datatype, known.shape, any_rank=known.any_rank)


def _check_runnable(
    model: ModelId, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> None:
    """Refuse text inputs with BF16 outputs: no method of a session can run both (``session``)."""
    text = [spec.name for spec in inputs.values() if spec.datatype == "BYTES"]
    halves = [spec.name for spec in outputs.values() if spec.datatype == "BF16"]
    if text and halves:
        raise LoadFailed(
            f"{model} takes text ({text[0]!r}) and gives BF16 ({halves[0]!r}), which ONNX Runtime "
            "cannot do from Python: let the model cast that output to FP32"
        )


def _taken(
    model: ModelId,
    needed: dict[str, TensorSpec],
    defaults: dict[str, TensorSpec],
    wanted: tuple[TensorSpec, ...],
) -> dict[str, TensorSpec]:
    """The inputs: all that are *needed*, and the *wanted* ones that have *defaults*."""
    taken = _configured(model, "input", needed | defaults, wanted)
    missing = [name for name in needed if name not in taken]
    if wanted and missing:
        raise LoadFailed(f"config.pbtxt of {model} leaves out input {missing[0]!r}")
    for spec in wanted:
        if spec.optional and spec.name in needed:
            raise LoadFailed(
                f"config.pbtxt of {model} declares input {spec.name!r} optional; the file has no "
                "default for it"
            )
    optional = {name: replace(spec, optional=name in defaults) for name, spec in taken.items()}
    return optional or needed


def _configured(
    model: ModelId, what: str, found: dict[str, TensorSpec], wanted: tuple[TensorSpec, ...]
) -> dict[str, TensorSpec]:
    """The *wanted* tensors of the configuration, checked against those *found* in the file."""
    for spec in wanted:
        if spec.name not in found:
            raise LoadFailed(
                f"config.pbtxt of {model} declares {what} {spec.name!r}; "
                f"the file has {', '.join(map(repr, found)) or 'none'}"
            )
        _check_agreement(model, what, spec.as_the_model_has_it, found[spec.name])
    return {
        spec.name: replace(spec, any_rank=found[spec.name].any_rank and spec.reshape is None)
        for spec in wanted
    }


def _check_agreement(model: ModelId, what: str, spec: TensorSpec, found: TensorSpec) -> None:
    if spec.datatype != found.datatype:
        raise LoadFailed(
            f"config.pbtxt of {model} declares {what} {spec.name!r} as {spec.datatype}; "
            f"the file says {found.datatype}"
        )
    fits = len(spec.shape) == len(found.shape) and all(
        want == got or -1 in (want, got) for want, got in zip(spec.shape, found.shape, strict=True)
    )
    if not fits:
        raise LoadFailed(
            f"config.pbtxt of {model} declares {what} {spec.name!r} with shape "
            f"{list(spec.shape)}; the file says {list(found.shape)}"
        )


def _batched(
    model: ModelId,
    config: ModelConfig,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
) -> int:
    if config.max_batch_size:
        for what, specs in (("input", inputs), ("output", outputs)):
            for spec in specs.values():
                if spec.shape[:1] != (-1,) or spec.any_rank:
                    has = "any shape" if spec.any_rank else f"shape {list(spec.shape)}"
                    raise LoadFailed(
                        f"config.pbtxt of {model} sets max_batch_size, but {what} {spec.name!r} "
                        f"has {has}, without a batch dimension"
                    )
    return config.max_batch_size
