"""Makes sessions of ONNX files.

ONNX Runtime's defaults that do not suit a server of many models, each measured on 1.31:

- Its CPU arena keeps all memory that was ever used, and one output that is still in use
  keeps the whole arena. It costs more than it gains here, so it is off (``options``).
- Every object it returns (``NodeArg``, ``ModelMetadata``, ``IOBinding``) keeps the whole
  session alive. None of them leaves this package.
- It folds constants of any size (``header`` sets a limit).
- It ends the process when the least INT32 or INT64 is divided by -1, and for some inputs that are
  empty or 0 (``guarded``). One of its optimizers brings such a node in (``turns_batches``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from workbench.backends.base import Inspection, Session
from workbench.backends.onnx import runtime
from workbench.backends.onnx.errors import load_error, wake_error
from workbench.backends.onnx.file_lease import held
from workbench.backends.onnx.guarded import guarded
from workbench.backends.onnx.header.file import OnnxFile, OnnxFiles
from workbench.backends.onnx.heap import large_blocks_kept, large_blocks_mapped, trim
from workbench.backends.onnx.kept_weights import kept
from workbench.backends.onnx.options import (
    cuda_options,
    prepared_options,
    session_options,
    shrinkage,
)
from workbench.backends.onnx.ranks import ranked
from workbench.backends.onnx.reshape import ReshapingSession, reshapes
from workbench.backends.onnx.session import OnnxSession
from workbench.backends.onnx.signature import completed, onnx_signature
from workbench.errors import LoadFailed, MemoryExhausted
from workbench.events import EventLog, OptionIgnored
from workbench.model import (
    ModelConfig,
    ModelId,
    ModelSource,
    Need,
    Schedule,
    VersionPolicy,
)
from workbench.stamps import stamps
from workbench.stop import CancellationToken

_LEFT_OUT = "optimization.disable_specified_optimizers"
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


class Tiers(Protocol):
    """Prepared models on disk, which load faster (``onnx_tiers``)."""

    def find(self, model: ModelId, file: OnnxFile, version: str) -> tuple[Path, int] | None:
        """The prepared form of *file* and its size; ``None`` if there is none that is complete."""
        ...

    def drop(self, model: ModelId, found: Path, reason: str) -> None:
        """Remove the prepared model *found*, which does not load."""
        ...

    def loaded(self, model: ModelId, file: OnnxFile, version: str, *, wanted: bool) -> None:
        """Note a load of *file* itself; prepare it if it is *wanted* or likely to load again."""
        ...


class OnnxBackend:
    """Makes sessions of ONNX files, on the GPU *cuda_device*, or on the CPU if it is ``None``.

    *prepared* has models that load faster; they are for the CPU only. *log* receives an
    event for each option of a configuration that has no effect.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        cuda_device: int | None = None,
        prepared: Tiers | None = None,
        log: EventLog | None = None,
    ) -> None:
        self._threads = threads
        self._cuda_device = cuda_device
        self._files = OnnxFiles(ranked)
        self._prepared = prepared if cuda_device is None else None
        self._log = log or EventLog()

    def wake(self) -> None:
        """Make a first session: what it takes for ONNX Runtime and CUDA is counted for no model."""
        try:
            runtime.wake(self._cuda_device)
        except Exception as error:  # its exceptions share no base below Exception
            raise wake_error(error) from error

    def inspect(self, source: ModelSource) -> Inspection:
        """Read the file's header; the weights are not read."""
        with _paths_as_sent(source):
            file = self._files.read(_path(source))
            schedule = self._schedule(completed(source.config, file))
            origin = _origin(file, source)
            need = Need(file.load_nbytes, max(0, file.load_nbytes - file.resident_nbytes))
            return Inspection(onnx_signature(source, file), need, origin, schedule)

    def load(self, source: ModelSource, stop: CancellationToken | None = None) -> Session:
        """Load the file by its path; from bytes it would take three times the memory."""
        with _paths_as_sent(source):
            return self._loaded(source, stop or CancellationToken())

    def _loaded(self, source: ModelSource, stop: CancellationToken) -> Session:
        file = self._files.read(_path(source))
        if file.lacking and self._cuda_device is None:
            raise LoadFailed(
                f"{source.id} has {file.lacking}, which ONNX Runtime reads anyway: give it one"
            )
        signature = onnx_signature(source, file)
        origin, config = _origin(file, source), source.config
        session, mapped_nbytes = self._load(source, file, stop)
        if self._cuda_device is not None and not runtime.runs_on_cuda(session):
            raise LoadFailed(
                f"{source.id} is meant for the GPU; ONNX Runtime would run it on the CPU"
            )
        self._tell_ignored(source.id, config)
        kind = ReshapingSession if reshapes(signature) else OnnxSession
        return kind(
            runtime.engine(),
            source.id,
            signature,
            file,
            session,
            on_cpu=self._cuda_device is None,
            mapped_nbytes=mapped_nbytes,
            origin=origin,
            shrinks=shrinkage(config.engine, self._cuda_device),
            schedule=self._schedule(completed(config, file)),
        )

    def _tell_ignored(self, model: ModelId, config: ModelConfig) -> None:
        """Log the options of *config* that have no effect on this device."""
        here = "CPU" if self._cuda_device is None else "GPU"
        if config.placed not in ("", here):
            reason = f"models run on the {here} here"
            self._log.append(OptionIgnored(model, f"KIND_{config.placed}", reason))
        if self._cuda_device is None and config.engine.cuda:
            self._log.append(OptionIgnored(model, "options of CUDA", "no GPU is used"))

    def _schedule(self, config: ModelConfig) -> Schedule | None:
        """How many runs are made at once: by default one on a GPU, else one for each core."""
        if config.batching is None and not config.instances:
            return None
        cores = max(1, (os.cpu_count() or 1) // self._threads)
        default = cores if self._cuda_device is None else 1
        return Schedule(config.instances or default, config.batching)

    def _load(
        self, source: ModelSource, file: OnnxFile, stop: CancellationToken
    ) -> tuple[Any, int]:
        """A session of the prepared model, or of *file* itself; and how many bytes it maps."""
        prepared, tier = self._prepared, source.config.tier
        fully_optimized = source.config.engine.optimization == "all"
        if prepared is None or tier == "plain" or not fully_optimized:
            return self._load_plain(source, file, stop), 0
        version = runtime.engine().__version__
        if (found := prepared.find(source.id, file, version)) is not None:
            path, nbytes = found
            session = self._load_prepared(prepared, path, source, file, stop)
            if session is not None:
                return session, min(file.weights_nbytes, nbytes)
        session = self._load_plain(source, file, stop)
        prepared.loaded(source.id, file, version, wanted=tier != "auto")
        return session, 0

    def _load_plain(self, source: ModelSource, file: OnnxFile, stop: CancellationToken) -> Any:
        wanted = source.config.engine
        options = session_options(runtime.engine(), self._threads, file.fold_limit_nbytes, wanted)
        cuda = None if self._cuda_device is None else cuda_options(self._cuda_device, wanted)
        with held(*file.external_files):
            _check_unchanged(source, file)
            try:
                with (
                    kept(*file.external_files, stop=stop),
                    large_blocks_mapped(),
                    _cancelled_by(stop, options),
                ):
                    return runtime.new_session(runnable(file, options), options, cuda)
            except Exception as error:  # its exceptions share no base below Exception
                raise load_error(source.id, error) from error
            finally:
                trim()

    def _load_prepared(
        self,
        prepared: Tiers,
        found: Path,
        source: ModelSource,
        file: OnnxFile,
        stop: CancellationToken,
    ) -> Any | None:
        """A session of the prepared model *found*; ``None`` if it does not load, and is dropped."""
        mapped, wanted = source.config.tier == "mapped", source.config.engine
        options = prepared_options(
            runtime.engine(), self._threads, file.fold_limit_nbytes, wanted, mapped=mapped
        )
        try:
            with large_blocks_kept(), _cancelled_by(stop, options):
                return runtime.new_session(str(found), options)
        except Exception as error:  # its exceptions share no base below Exception
            failure = load_error(source.id, error)
            if stop.error or isinstance(failure, MemoryExhausted):  # the file is not at fault
                raise failure from error
            prepared.drop(source.id, found, str(failure))
            return None
        finally:
            # After a mapped load no memory is free to return, and a trim takes time.
            if not mapped:
                trim()


def runnable(file: OnnxFile, options: Any) -> str | bytes:
    """The path of *file*; its bytes if these have to be rewritten. Sets *options* for it.

    Raises ``LoadFailed``.
    """
    if file.turns_batches:
        options.add_session_config_entry(_LEFT_OUT, "MatmulTransposeFusion")
    if not file.is_rewritten:
        return str(file.path)
    options.add_session_config_entry(_WEIGHTS_FOLDER, str(file.path.parent))
    return guarded(file)


def _cancelled_by(stop: CancellationToken, options: Any) -> AbstractContextManager[None]:
    """Within this context *stop* cancels the load that has these *options*."""
    return stop.calls(partial(options.set_load_cancellation_flag, True))


def _check_unchanged(source: ModelSource, file: OnnxFile) -> None:
    """Raise ``LoadFailed`` if the files changed since the header was read."""
    if (file.external_files or file.is_rewritten) and stamps(
        file.path, *file.external_files
    ) != file.stamps:
        raise LoadFailed(f"the files of {source.id} changed while it was loaded")


def _origin(file: OnnxFile, source: ModelSource) -> object:
    """Equal for sessions that are made of the same files and the same configuration.

    Which versions are served makes no difference to any of them.
    """
    config = replace(source.config, version_policy=VersionPolicy())
    return file.path, file.stamps, config, stamps(*config.warm_up_files)


@contextmanager
def _paths_as_sent(source: ModelSource) -> Iterator[None]:
    """Within this context errors name files that came with a load as the load named them."""
    try:
        yield
    except LoadFailed as error:
        if source.folder is None:
            raise
        raise type(error)(str(error).replace(f"{source.folder.name}/", "")) from error


def _other_files(folder: Path) -> str:
    """Advice about the ONNX files in *folder* whose names are not the one to read."""
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix == ".onnx")
    except OSError:  # the folder is gone, too
        return ""
    if not names:
        return ""
    cure = "rename it, or name it as default_model_filename in config.pbtxt"
    return f": there is {names[0]!r}; {cure}"


def _path(source: ModelSource) -> Path:
    assert isinstance(source.origin, Path)
    try:
        there = source.origin.is_file()
    except OSError as error:
        raise LoadFailed(f"the file of {source.id} cannot be read: {error.strerror}") from None
    if not there:
        folder = source.origin.is_dir()
        hint = ": that is a folder" if folder else _other_files(source.origin.parent)
        raise LoadFailed(f"{source.id} has no file {str(source.origin)!r}{hint}")
    path = os.fsencode(source.origin)
    if path.decode("utf-8", "ignore").encode() != path:
        raise LoadFailed(
            f"the path of {source.id} is not UTF-8, which ONNX Runtime cannot open: rename {path!r}"
        )
    return source.origin
