"""The options of ONNX Runtime's sessions: those of the server, and those of a configuration."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from workbench.model import EngineOptions

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
_DEFAULTS = EngineOptions()


def session_options(
    ort: ModuleType, threads: int = 1, fold_limit_nbytes: int = 0, wanted: EngineOptions = _DEFAULTS
) -> Any:
    """Options of a plain session, with *threads* threads unless *wanted* has another number."""
    options = ort.SessionOptions()
    intra = threads if wanted.intra_threads is None else wanted.intra_threads
    options.intra_op_num_threads = intra
    options.inter_op_num_threads = 1 if wanted.inter_threads is None else wanted.inter_threads
    if wanted.parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = wanted.arena
    options.enable_mem_pattern = wanted.memory_pattern
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, _LEVELS[wanted.optimization]
    )
    # Errors are raised as exceptions; printing them too would only disturb.
    options.log_severity_level = 4
    # In a file of 400 bytes, each node may be folded into a constant of a gigabyte.
    folds = "optimization.constant_folding_max_output_size_in_bytes"
    options.add_session_config_entry(folds, str(fold_limit_nbytes))
    if intra != 1:  # the waiting threads of many idle models would use all processors
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if wanted.parallel:
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # weights are not allocated in a GPU's arena, which never shrinks
    key = "session.use_device_allocator_for_initializers"
    options.add_session_config_entry(key, str(int(wanted.device_allocator)))
    return options


def prepared_options(
    ort: ModuleType,
    threads: int,
    fold_limit_nbytes: int,
    wanted: EngineOptions = _DEFAULTS,
    *,
    mapped: bool,
) -> Any:
    """Options of a session of a prepared model, which is optimised already."""
    options = session_options(ort, threads, fold_limit_nbytes, wanted)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if mapped:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def cuda_options(device: int, wanted: EngineOptions = _DEFAULTS) -> dict[str, str]:
    """Options of the CUDA provider on GPU *device*."""
    return {
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "cudnn_conv_use_max_workspace": "0",
        **wanted.cuda,
        "enable_cuda_graph": "0",  # a captured run would write to the output buffers of another run
        "device_id": str(device),
    }


def shrinkage(wanted: EngineOptions, cuda_device: int | None) -> str:
    """The arenas that shrink after each run, of those that the session has.

    The CPU's always does: otherwise it would keep the memory of runs, which no books contain.
    """
    asked = {device.partition(":")[0] for device in wanted.shrinkage}
    arenas = []
    if wanted.arena and (cuda_device is None or "cpu" in asked):
        arenas.append("cpu:0")
    if "gpu" in asked and cuda_device is not None:
        arenas.append(f"gpu:{cuda_device}")
    return ";".join(arenas)
