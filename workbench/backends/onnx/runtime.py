"""ONNX Runtime: the only file that imports it.

What it would do by itself and must not, each measured on 1.31:

- It phones home unless told otherwise before its import.
- Asked for CUDA where CUDA does not work, it runs on the CPU and says so only
  on the C library's stderr. So fallback is off, and what was given is compared
  with what was asked.
- Its CPU arena keeps what was ever used, and one kept output keeps all of it.
  The arena costs more than it gives here, so it is off.
- Every object it hands out (``NodeArg``, ``ModelMetadata``, ``IOBinding``)
  keeps the whole session alive. None leaves this file and ``onnx_session``.
- It folds constants without regard to their size.
- It ends the process where the least INT32 or INT64 is divided by -1 (``guarded``).

``onnx_session`` runs what is loaded here, ``onnx_values`` has the datatypes, and
``onnx_signature`` what a model takes and gives.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from workbench.backends.base import Inspection, Session
from workbench.backends.onnx.errors import first_line, load_error, wake_error
from workbench.backends.onnx.file_lease import held
from workbench.backends.onnx.fp16 import write_converted
from workbench.backends.onnx.graphs import Device, Graphs, unfit_model, unfit_session
from workbench.backends.onnx.guarded import guarded
from workbench.backends.onnx.header import OnnxFile, OnnxFiles
from workbench.backends.onnx.heap import large_blocks_kept, large_blocks_mapped, trim
from workbench.backends.onnx.options import (
    cuda_options,
    prepared_options,
    session_options,
    shrinkage,
)
from workbench.backends.onnx.reshape import ReshapingSession, inside, reshapes
from workbench.backends.onnx.session import OnnxSession, OutputMemory
from workbench.backends.onnx.signature import onnx_signature
from workbench.backends.onnx.values import made_up
from workbench.backends.onnx_tiers.folder import MODEL, WEIGHTS, nbytes_of
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.backends.onnx_tiers.realign import realign
from workbench.errors import LoadFailed, MemoryExhausted
from workbench.events import EventLog, OptionIgnored
from workbench.gate import GATE
from workbench.model import Footprint, ModelConfig, ModelSource, Schedule, Signature
from workbench.stamps import stamps
from workbench.stop import Stop

# y = Identity(x), one float each: enough to see where a session really runs.
_TINY_MODEL = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201745a0f0a0178120a0a08080112040a02"
    "0801620f0a0179120a0a08080112040a02080142040a00100d"
)


_NO_GPU = "no GPU is used"
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


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
    count_by_bus()
    import onnxruntime

    runtime: ModuleType = onnxruntime
    return runtime


def count_by_bus() -> None:
    """Have CUDA count GPUs as NVML does, and not the fastest first, unless it was told how."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


@cache
def _wake(cuda_device: int | None) -> None:
    ort = _runtime()
    cuda = None if cuda_device is None else cuda_options(cuda_device)
    _session(ort, _TINY_MODEL, session_options(ort), cuda)


def find_cuda(device_index: int = 0) -> CudaAbsence | None:
    """Why models cannot run on GPU *device_index*, or ``None`` if they can: proven by one."""
    ort = _runtime()
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return CudaAbsence.NOT_IN_BUILD
    _preload_cuda(ort)
    try:
        session = _session(ort, _TINY_MODEL, session_options(ort), cuda_options(device_index))
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
    """Makes sessions of ONNX files, on the GPU *cuda_device*, or on the CPU if it is ``None``.

    *prepared* are those that load faster, for the CPU only, and those in fp16. *log* hears
    what is not done of what configurations ask for. What only a GPU is to do, graphs and
    fp16, is done where there is one, or as *accelerated* says. Large outputs of a GPU lie in
    *output_memory*.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        cuda_device: int | None = None,
        prepared: PreparedModels | None = None,
        log: EventLog | None = None,
        accelerated: bool | None = None,
        output_memory: OutputMemory | None = None,
    ) -> None:
        on_gpu = cuda_device is not None
        self._threads = threads
        self._cuda_device = cuda_device
        self._device = Device("cpu", 0) if cuda_device is None else Device("cuda", cuda_device)
        self._accelerated = on_gpu if accelerated is None else accelerated
        self._files = OnnxFiles()
        self._converted_files = OnnxFiles(fp16_kernels=on_gpu)
        self._cache = prepared
        self._prepared = None if on_gpu else prepared
        self._log = log or EventLog()
        self._output_memory = output_memory

    def inspect(self, source: ModelSource) -> Inspection:
        """Read what the file's header says; the weights are not touched."""
        file = self._files.read(_path(source))
        signature = onnx_signature(source, file)
        origin = _origin(file, source)
        if self._in_fp16(source):  # which takes no more than the original
            file = self._find_fp16(source, file) or file
        return Inspection(signature, file.load_nbytes, origin)

    def wake(self) -> None:
        """Make a first session: what ONNX Runtime and CUDA's context take is no model's."""
        try:
            _wake(self._cuda_device)
        except Exception as error:  # its exceptions share no base below Exception
            raise wake_error(error) from error

    def load(self, source: ModelSource, stop: Stop | None = None) -> Session:
        """Load the file, by its path: from bytes it would take three times the memory."""
        file = self._files.read(_path(source))
        signature = onnx_signature(source, file)
        stop = stop or Stop()
        origin, graphs_wanted = _origin(file, source), self._wants_graphs(source, file, signature)
        mapped_nbytes = 0
        if self._in_fp16(source):
            file, session = self._load_fp16(source, file, stop, graphs=graphs_wanted)
        else:
            if source.config.precision == "fp16":
                self._log.append(OptionIgnored(source.id, "fp16", _NO_GPU))
            session, mapped_nbytes = self._load(source, file, stop, graphs=graphs_wanted)
        if self._cuda_device is not None and not _runs_on_cuda(session):
            raise LoadFailed(f"{source.id} was to run on the GPU and would run on the CPU")
        other_nbytes = file.resident_nbytes - file.weights_nbytes
        here = "CPU" if self._cuda_device is None else "GPU"
        if source.config.placed not in ("", here):
            reason = f"models run on the {here} here"
            self._log.append(OptionIgnored(source.id, f"KIND_{source.config.placed}", reason))
        if self._cuda_device is None and source.config.engine.cuda:
            self._log.append(OptionIgnored(source.id, "options of CUDA", _NO_GPU))
        made = OnnxSession(
            _runtime(),
            source.id,
            inside(signature),
            Footprint(file.weights_nbytes, other_nbytes, mapped_nbytes),
            session,
            steady=not file.by_value,
            on_cpu=self._cuda_device is None,
            recurrent=file.recurrent,
            graphs=self._graphs(source, signature, session) if graphs_wanted else None,
            origin=origin,
            shrinks=shrinkage(source.config.engine, self._cuda_device),
            schedule=self._schedule(source.config),
            output_memory=self._output_memory,
        )
        return ReshapingSession(made, signature) if reshapes(signature) else made

    def _schedule(self, config: ModelConfig) -> Schedule | None:
        """A run has one thread, and a GPU one queue: so as many runs as can go at once."""
        if config.batching is None and not config.instances:
            return None
        cores = max(1, (os.cpu_count() or 1) // self._threads)
        by_itself = cores if self._cuda_device is None else 1
        return Schedule(config.instances or by_itself, config.batching)

    def _in_fp16(self, source: ModelSource) -> bool:
        return self._accelerated and source.config.precision == "fp16"

    def _wants_graphs(self, source: ModelSource, file: OnnxFile, signature: Signature) -> bool:
        """Whether the runs of *source* are to be captured, as far as its file tells."""
        if not source.config.graphs:
            return False
        unfit = unfit_model(file, signature) if self._accelerated else _NO_GPU
        return not self._ignored(source, "CUDA graphs", unfit)

    def _graphs(self, source: ModelSource, signature: Signature, session: Any) -> Graphs | None:
        if self._ignored(source, "CUDA graphs", unfit_session(session, self._device)):
            return None
        return Graphs(_runtime(), source.id, signature, session, self._device)

    def _ignored(self, source: ModelSource, option: str, reason: str) -> bool:
        """Whether there is a *reason* to ignore the *option*; then the log hears of it."""
        if reason:
            self._log.append(OptionIgnored(source.id, option, reason))
        return bool(reason)

    def _find_fp16(self, source: ModelSource, file: OnnxFile) -> OnnxFile | None:
        """What *file* is in fp16, if it was converted already."""
        cache = self._cache
        found = cache.find(source.id, file, _runtime().__version__, "fp16") if cache else None
        if cache is None or found is None:
            return None
        try:
            return self._converted_files.read(found)
        except LoadFailed as error:
            cache.drop(source.id, found, str(error))
            return None

    def _load_fp16(
        self, source: ModelSource, file: OnnxFile, stop: Stop, *, graphs: bool
    ) -> tuple[OnnxFile, Any]:
        """What *file* is in fp16, converted if it was not yet, and its session."""
        cache = self._cache
        if cache is None:
            raise LoadFailed(
                f"{source.id} cannot be had in fp16 without disk to keep that: "
                "the setting cache is off"
            )
        converted = self._find_fp16(source, file)
        if converted is not None:
            try:
                return converted, self._load_plain(source, converted, stop, graphs=graphs)
            except LoadFailed as error:
                if stop.error:  # which is not its fault
                    raise
                cache.drop(source.id, converted.path, str(error))
        made = cache.convert(source.id, file, _runtime().__version__, stop)
        converted = self._converted_files.read(made)
        return converted, self._load_plain(source, converted, stop, graphs=graphs)

    def _load(
        self, source: ModelSource, file: OnnxFile, stop: Stop, *, graphs: bool
    ) -> tuple[Any, int]:
        """The session, prepared if that is to be and can be, and how much of it is mapped."""
        prepared, tier = self._prepared, source.config.tier
        as_prepared = source.config.engine.optimization == "all"
        if prepared is None or tier == "plain" or not as_prepared:
            return self._load_plain(source, file, stop, graphs=graphs), 0
        runtime = _runtime().__version__
        found = prepared.find(source.id, file, runtime)
        if found is not None:
            mapped_nbytes = min(file.weights_nbytes, nbytes_of(found.parent))
            session = self._load_prepared(prepared, found, source, file, stop)
            if session is not None:
                return session, mapped_nbytes
        session = self._load_plain(source, file, stop, graphs=graphs)
        prepared.loaded(source.id, file, runtime, wanted=tier != "auto")
        return session, 0

    def _load_plain(self, source: ModelSource, file: OnnxFile, stop: Stop, *, graphs: bool) -> Any:
        ort = _runtime()
        wanted = source.config.engine
        options = session_options(ort, self._threads, file.fold_limit_nbytes, wanted)
        cuda = None
        if self._cuda_device is not None:
            cuda = cuda_options(self._cuda_device, wanted, graphs=graphs)
        with held(*file.external_files):
            _check_unchanged(source, file)
            try:
                with large_blocks_mapped(), _cancelled_by(stop, options):
                    return _session(ort, _model(file, options), options, cuda)
            except Exception as error:  # its exceptions share no base below Exception
                raise load_error(source.id, error) from error
            finally:
                trim()

    def _load_prepared(
        self,
        prepared: PreparedModels,
        found: Path,
        source: ModelSource,
        file: OnnxFile,
        stop: Stop,
    ) -> Any | None:
        """What was prepared of *file*, *found* and loaded; ``None`` if it is no good any more."""
        ort = _runtime()
        mapped = source.config.tier == "mapped"
        limit_nbytes, wanted = file.fold_limit_nbytes, source.config.engine
        options = prepared_options(ort, self._threads, limit_nbytes, wanted, mapped=mapped)
        try:
            with large_blocks_kept(), _cancelled_by(stop, options):
                return _session(ort, str(found), options)
        except Exception as error:  # its exceptions share no base below Exception
            failure = load_error(source.id, error)
            if stop.error or isinstance(failure, MemoryExhausted):  # which is not its fault
                raise failure from error
            prepared.drop(source.id, found, str(failure))
            return None
        finally:
            if not mapped:  # which leaves nothing behind, and is not to take 10 ms for that
                trim()


def write_prepared(file: OnnxFile, folder: Path) -> None:
    """Write *file* into *folder* as it is once loaded on a CPU, and see that it answers the same.

    Raises ``LoadFailed``. May end the process: what it wrote is then not to be used.
    """
    ort = _runtime()
    options = session_options(ort, 1, file.fold_limit_nbytes)
    options.optimized_model_filepath = str(folder / MODEL)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", WEIGHTS),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(key, value)
    try:
        plain = _session(ort, _model(file, options), options)
    except Exception as error:  # its exceptions share no base below Exception
        raise LoadFailed(f"it cannot be written once it is loaded: {first_line(error)}") from error
    if (folder / WEIGHTS).exists():  # else all are small, and in the model
        realign(folder / MODEL, folder / WEIGHTS)
    try:
        same = _answers_alike(ort, file, plain, folder / MODEL)
    except Exception as error:  # its exceptions share no base below Exception
        raise LoadFailed(f"it cannot be tried on made-up inputs: {first_line(error)}") from error
    if not same:
        raise LoadFailed("it would answer otherwise than the model itself")


def write_fp16(file: OnnxFile, folder: Path) -> None:
    """Write *file* into *folder*, computing in fp16, and see that it answers alike.

    Raises ``LoadFailed``. May end the process, as ``write_prepared``.
    """
    ort = _runtime()
    try:
        from onnxruntime.transformers.float16 import convert_float_to_float16
    except ImportError as error:
        raise LoadFailed(
            f"the package {error.name!r} is missing: pip install 'serving-workbench[fp16]'"
        ) from error

    def load(file: OnnxFile) -> Any:  # not optimised, or what is tried would be another model
        options = prepared_options(ort, 1, file.fold_limit_nbytes, mapped=False)
        return _session(ort, _model(file, options), options)

    write_converted(file, folder, convert_float_to_float16, load)


def _answers_alike(ort: ModuleType, file: OnnxFile, plain: Any, model: Path) -> bool:
    """Whether *model* answers as *plain* does; mapped, but for rounding."""
    limit_nbytes = file.fold_limit_nbytes
    made = [
        _session(ort, str(model), prepared_options(ort, 1, limit_nbytes, mapped=mapped))
        for mapped in (False, True)
    ]
    for size in (1, 3):  # small matrices have kernels of their own
        feed = made_up(plain.get_inputs(), size)
        wanted, found, mapped = (session.run(None, feed) for session in (plain, *made))
        if not all(map(_same, wanted, found)) or not all(map(_alike, wanted, mapped)):
            return False
    return True


def _same(one: Any, other: Any) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _alike(one: Any, other: Any) -> bool:
    """Whether *other* is *one* but for the rounding of sums in another order."""
    if one.dtype.kind != "f":
        return _same(one, other)
    return np.allclose(one, other, rtol=1e-2, atol=1e-3 * np.abs(one).max(initial=1.0))


def _model(file: OnnxFile, options: Any) -> str | bytes:
    """What a session with these *options* is made of: the path of *file*, or it, guarded.

    Raises ``LoadFailed``.
    """
    if not file.divisions:
        return str(file.path)
    options.add_session_config_entry(_WEIGHTS_FOLDER, str(file.path.parent))
    return guarded(file)


def _session(
    ort: ModuleType,
    model: str | bytes,
    options: Any,
    cuda: dict[str, str] | None = None,
) -> Any:
    """A session on the CPU, or on CUDA with those options."""
    providers: list[Any] = ["CPUExecutionProvider"]
    if cuda is None:
        return ort.InferenceSession(model, options, providers=providers, enable_fallback=0)
    providers.insert(0, ("CUDAExecutionProvider", cuda))
    with GATE:
        return ort.InferenceSession(model, options, providers=providers, enable_fallback=0)


def _cancelled_by(stop: Stop, options: Any) -> AbstractContextManager[None]:
    """Meanwhile *stop* ends the load that has these *options*."""
    return stop.calls(partial(options.set_load_cancellation_flag, True))


def _check_unchanged(source: ModelSource, file: OnnxFile) -> None:
    """What was read of *file*, its weights above all, is as it was. Raises ``LoadFailed``."""
    if (file.external_files or file.divisions) and stamps(
        file.path, *file.external_files
    ) != file.stamps:
        raise LoadFailed(f"the files of {source.id} changed while it was loaded")


def _origin(file: OnnxFile, source: ModelSource) -> object:
    """What a session of *file* is made of."""
    return file.path, file.stamps, source.config, stamps(*source.config.warm_up_files)


def _path(source: ModelSource) -> Path:
    assert isinstance(source.origin, Path)
    try:
        there = source.origin.is_file()
    except OSError as error:
        raise LoadFailed(f"the file of {source.id} cannot be read: {error.strerror}") from None
    if not there:
        raise LoadFailed(f"{source.id} has no file {str(source.origin)!r}")
    return source.origin
