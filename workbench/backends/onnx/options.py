"""The options of ONNX Runtime's sessions: what the server wants, and what a configuration does."""

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
    ort: ModuleType,
    threads: int = 1,
    fold_limit_nbytes: int = 0,
    wanted: EngineOptions = _DEFAULTS,
) -> Any:
    """Options of a plain session: *threads*, unless it is *wanted* otherwise."""
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
    options.log_severity_level = 4  # errors come as exceptions, and need no stderr
    # A file of 400 bytes may ask for constants of a gigabyte a node.
    folds = "optimization.constant_folding_max_output_size_in_bytes"
    options.add_session_config_entry(folds, str(fold_limit_nbytes))
    if intra != 1:  # spinning threads of many idle models would eat the machine
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if wanted.parallel:
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # so that weights lie beside a GPU's arena, which keeps what it has
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
    """Options of a session of what was prepared, and so is optimised already."""
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
        "enable_cuda_graph": "0",  # a captured run would write to the buffers of another
        "device_id": str(device),
    }


def shrinkage(wanted: EngineOptions, cuda_device: int | None) -> str:
    """The arenas that are to shrink after each run; those only that the session has.

    A CPU's always does: else what runs took would stay, and be in no books.
    """
    asked = {device.partition(":")[0] for device in wanted.shrinkage}
    arenas = []
    if wanted.arena and (cuda_device is None or "cpu" in asked):
        arenas.append("cpu:0")
    if "gpu" in asked and cuda_device is not None:
        arenas.append(f"gpu:{cuda_device}")
    return ";".join(arenas)
