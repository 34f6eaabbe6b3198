"""ONNX Runtime: the only file that imports it.

What it would do by itself and must not, each measured on 1.31:

- It phones home unless told otherwise before its import.
- Asked for CUDA where CUDA does not work, it runs on the CPU and says so only
  on the C library's stderr. So fallback is off, and what was given is compared
  with what was asked.
- Its CPU arena keeps what was ever used, and one kept output keeps all of it.
  The arena costs more than it gives here, so it is off.
- Every object it hands out (``NodeArg``, ``ModelMetadata``, ``IOBinding``)
  keeps the whole session alive. None leaves this file.
- glibc keeps freed weights; only ``malloc_trim`` gives them back, and only mapped
  blocks go back while a load is under way.
- It folds constants without regard to their size.
- It misreads big-endian arrays and fixed-width text without a word. Tensors
  are native and text is ``str`` objects by the time they get here.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from workbench.backends.base import Inspection
from workbench.backends.onnx_file import OnnxFile, ValueInfo, read_onnx_file
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    RunFailed,
    WorkbenchError,
)
from workbench.image_forms import image_forms
from workbench.model import ModelConfig, ModelId, ModelSource, Signature, TensorSpec
from workbench.tensor import Array, Tensor

PLATFORM = "onnxruntime_onnx"

# onnx.proto3, TensorProto.DataType
_DATATYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64",
    8: "BYTES", 9: "BOOL", 10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64",
}  # fmt: skip

_OUT_OF_MEMORY = re.compile(
    r"Failed to allocate memory|Available memory of|bad_alloc|out of memory|ALLOC_FAILED",
    re.IGNORECASE,
)

# y = Identity(x), one float each: enough to see where a session really runs.
_TINY_MODEL = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201745a0f0a0178120a0a08080112040a02"
    "0801620f0a0179120a0a08080112040a02080142040a00100d"
)


class CudaAbsence(Enum):
    """Why ONNX Runtime cannot run models on CUDA; the value is the cure."""

    NOT_IN_BUILD = "this build of ONNX Runtime has no CUDA: install onnxruntime-gpu instead"
    LIBRARIES_MISSING = (
        "the CUDA 13 libraries or the driver do not load: "
        "pip install 'serving-workbench[gpu]', and use a driver of 580 or newer"
    )


@cache
def _runtime() -> ModuleType:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    runtime: ModuleType = onnxruntime
    return runtime


def find_cuda(device_index: int = 0) -> CudaAbsence | None:
    """Why models cannot run on GPU *device_index*, or ``None`` if they can: proven by one."""
    ort = _runtime()
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return CudaAbsence.NOT_IN_BUILD
    _preload_cuda(ort)
    try:
        session = _session(ort, _TINY_MODEL, _options(ort), device_index)
    except Exception:  # ONNX Runtime raises RuntimeError and its own kinds alike
        return CudaAbsence.LIBRARIES_MISSING
    return None if _runs_on_cuda(session) else CudaAbsence.LIBRARIES_MISSING


@cache
def _preload_cuda(ort: ModuleType) -> None:
    """Load the CUDA libraries that came from the package index, where they did."""
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls(directory="")


def _runs_on_cuda(session: Any) -> bool:
    return bool(session.get_providers()[:1] == ["CUDAExecutionProvider"])


class OnnxBackend:
    """Makes sessions of ONNX files, on the GPU *cuda_device*, or on the CPU if it is ``None``."""

    def __init__(self, *, threads: int = 1, cuda_device: int | None = None) -> None:
        self._threads = threads
        self._cuda_device = cuda_device

    def inspect(self, source: ModelSource) -> Inspection:
        """Read what the file's header says; the weights are not touched."""
        file = read_onnx_file(_path(source))
        return Inspection(_signature(source, file), file.load_nbytes)

    def load(self, source: ModelSource) -> OnnxSession:
        """Load the file, by its path: from bytes it would take three times the memory."""
        path = _path(source)
        file = read_onnx_file(path)
        signature = _signature(source, file)
        ort = _runtime()
        options = _options(ort, self._threads, file.fold_limit_nbytes)
        try:
            with _large_blocks_mapped():
                session = _session(ort, str(path), options, self._cuda_device)
        except Exception as error:  # its exceptions share no base below Exception
            raise _load_error(source.id, error) from error
        finally:
            _trim()
        if self._cuda_device is not None and not _runs_on_cuda(session):
            raise LoadFailed(f"{source.id} was to run on the GPU and would run on the CPU")
        nbytes, steady = file.resident_nbytes, not file.by_value
        return OnnxSession(source.id, signature, nbytes, session, steady=steady)


class OnnxSession:
    """A loaded ONNX model."""

    may_call = False

    def __init__(
        self, model: ModelId, signature: Signature, nbytes: int, session: Any, *, steady: bool
    ) -> None:
        self.signature = signature
        self.nbytes = nbytes
        self.steady = steady
        self._model = model
        self._run: Callable[..., list[Any]] | None = session.run
        self._under_way: set[Any] = set()  # the options of each run, by which it is stopped

    def run(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor]:
        """Run the model; the outputs may share memory with nobody but their reader."""
        assert self._run is not None
        feed = {name: _feed(name, tensor) for name, tensor in inputs.items()}
        options = _runtime().RunOptions()
        options.log_severity_level = 4
        self._under_way.add(options)
        try:
            arrays = self._run(outputs, feed, options)
        except Exception as error:  # its exceptions share no base below Exception
            raise _run_error(self._model, error) from error
        finally:
            self._under_way.discard(options)
        specs = self.signature.outputs
        return [
            _tensor(specs[name].datatype, array)
            for name, array in zip(outputs, arrays, strict=True)
        ]

    def cancel(self) -> None:
        """End each run at its next node."""
        for options in self._under_way.copy():
            options.terminate = True

    def close(self) -> None:
        """Drop the session and give its memory back to the system."""
        self._run = None
        _trim()


def _options(ort: ModuleType, threads: int = 1, fold_limit_nbytes: int = 0) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4  # errors come as exceptions, and need no stderr
    # A file of 400 bytes may ask for constants of a gigabyte a node.
    folds = "optimization.constant_folding_max_output_size_in_bytes"
    options.add_session_config_entry(folds, str(fold_limit_nbytes))
    if threads > 1:  # spinning threads of many idle models would eat the machine
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _session(ort: ModuleType, model: str | bytes, options: Any, cuda_device: int | None) -> Any:
    providers: list[Any] = ["CPUExecutionProvider"]
    if cuda_device is not None:
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        providers.insert(0, ("CUDAExecutionProvider", _cuda_options(cuda_device)))
    return ort.InferenceSession(model, options, providers=providers, enable_fallback=0)


def _cuda_options(device: int) -> dict[str, str]:
    return {
        "device_id": str(device),
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "cudnn_conv_use_max_workspace": "0",
    }


# ── glibc ───────────────────────────────────────────────────────────────────

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_loads = 0
_loads_lock = threading.Lock()


def _trim() -> None:
    """Give freed memory back to the system."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@contextmanager
def _large_blocks_mapped() -> Iterator[None]:
    """While any model loads, blocks from 1 MiB go back to the system as they are freed.

    Else a load's copies stay in the heap beside each other: up to 2.4 times a
    plain model's weights, 4 times a convolutional one's, until the next trim.
    Afterwards, blocks from 4 MiB and heap tops from 8 MiB go back, so that large
    runs leave little behind: 44 MiB instead of 380 after 6 concurrent runs on
    7 MiB tensors, which take 5 % longer for it.
    """
    global _loads  # noqa: PLW0603  # the allocator is the process's, so the count is too
    libc = _glibc()
    with _loads_lock:
        _loads += 1
        if libc is not None:
            libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)
    try:
        yield
    finally:
        with _loads_lock:
            _loads -= 1
            if libc is not None and not _loads:
                libc.mallopt(_M_MMAP_THRESHOLD, 4 << 20)
                libc.mallopt(_M_TRIM_THRESHOLD, 8 << 20)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc."""
    try:
        libc = ctypes.CDLL(None)
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
        libc.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        _ = libc.gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return None
    return libc


# ── tensors in and out ──────────────────────────────────────────────────────


def _feed(name: str, tensor: Tensor) -> Array:
    if tensor.datatype != "BYTES":
        return tensor.array
    text = np.empty(tensor.shape, object)
    flat = text.reshape(-1)
    try:
        for index, item in enumerate(tensor.array.reshape(-1)):
            flat[index] = item.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"input {name!r}: element {index} is not UTF-8 ({error.reason})"
        ) from error
    return text


def _tensor(datatype: str, array: Any) -> Tensor:
    return Tensor.of(array, "BYTES") if datatype == "BYTES" else Tensor(datatype, array)


# ── what the file and its configuration declare ─────────────────────────────


def _path(source: ModelSource) -> Path:
    assert isinstance(source.origin, Path)
    try:
        there = source.origin.is_file()
    except OSError as error:
        raise LoadFailed(f"the file of {source.id} cannot be read: {error.strerror}") from None
    if not there:
        raise LoadFailed(f"{source.id} has no file {str(source.origin)!r}")
    return source.origin


def _signature(source: ModelSource, file: OnnxFile) -> Signature:
    config = source.config
    inputs = {info.name: _spec(source.id, "input", info) for info in file.inputs}
    outputs = {info.name: _spec(source.id, "output", info) for info in file.outputs}
    taken = _configured(source.id, "input", inputs, config.inputs)
    return Signature(
        PLATFORM,
        taken,
        _configured(source.id, "output", outputs, config.outputs),
        _batched(source.id, config, inputs),
        config.labels,
        image_forms(source.id, taken, config.parameters),
    )


def _spec(model: ModelId, what: str, info: ValueInfo) -> TensorSpec:
    if info.kind != "tensor" or info.elem_type not in _DATATYPES:
        kind = info.kind if info.kind != "tensor" else f"tensor of ONNX type {info.elem_type}"
        raise LoadFailed(f"{what} {info.name!r} of {model} is a {kind}, which V2 cannot carry")
    if info.dims is None:
        raise LoadFailed(f"{what} {info.name!r} of {model} does not say how many dimensions it has")
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in info.dims)
    return TensorSpec(info.name, _DATATYPES[info.elem_type], shape)


def _configured(
    model: ModelId, what: str, found: dict[str, TensorSpec], wanted: tuple[TensorSpec, ...]
) -> dict[str, TensorSpec]:
    """What the configuration declares, checked against the file; the file's where it is silent."""
    for spec in wanted:
        if spec.name not in found:
            raise LoadFailed(
                f"config.pbtxt of {model} declares {what} {spec.name!r}; "
                f"the file has {', '.join(map(repr, found)) or 'none'}"
            )
        _check_agreement(model, what, spec, found[spec.name])
    missing = [name for name in found if name not in {spec.name for spec in wanted}]
    if wanted and missing and what == "input":
        raise LoadFailed(f"config.pbtxt of {model} leaves out input {missing[0]!r}")
    return {spec.name: spec for spec in wanted} or found


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


def _batched(model: ModelId, config: ModelConfig, inputs: Mapping[str, TensorSpec]) -> int:
    if config.max_batch_size:
        for spec in inputs.values():
            if spec.shape[:1] != (-1,):
                raise LoadFailed(
                    f"config.pbtxt of {model} sets max_batch_size, but input {spec.name!r} "
                    f"has shape {list(spec.shape)}, without a batch dimension"
                )
    return config.max_batch_size


# ── errors ──────────────────────────────────────────────────────────────────


def _load_error(model: ModelId, error: Exception) -> WorkbenchError:
    if _OUT_OF_MEMORY.search(str(error)):
        return MemoryExhausted(f"{model} did not load, memory ran out: {_first_line(error)}")
    return LoadFailed(f"{model} does not load: {_first_line(error)}")


def _run_error(model: ModelId, error: Exception) -> WorkbenchError:
    if _OUT_OF_MEMORY.search(str(error)):
        return MemoryExhausted(f"{model} ran out of memory: {_first_line(error)}")
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidArgument":
        return InvalidRequest(f"{model} refused its inputs: {_first_line(error)}")
    return RunFailed(f"{model} failed: {_first_line(error)}")


# What stands before the reason: a number and a word, and the place in its source
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_PLACE = re.compile(r"/onnxruntime_src/\S+ .*?\) ")
_IR_VERSION = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")


def _first_line(error: Exception) -> str:
    """The reason, in one line, with its cure where it is a common one."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    text = _PLACE.sub(" ", _CODE.sub("", text))
    too_new = _IR_VERSION.search(text)
    if too_new:
        return f"{too_new[0]}: set model.ir_version = {too_new[2]} before onnx.save"
    return text
