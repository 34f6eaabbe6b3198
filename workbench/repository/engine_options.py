"""Options of ONNX Runtime in a configuration, named as in Triton's ONNX Runtime backend."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from workbench.model import EngineOptions

_MOST_THREADS = 1024
_LEVELS = {-1: "basic", 0: "all", 1: "extended", 2: "none"}
_SHRINKAGE = re.compile(r"(cpu|gpu):[0-9]+(;(cpu|gpu):[0-9]+)*")


def engine_options(parameters: Mapping[str, str], optimization: Any) -> EngineOptions:
    """The options in *parameters* and in the message *optimization*.

    Raises ``ValueError``, with the name of the field, for a wrong value.
    """
    level = optimization.graph.level
    if level not in _LEVELS:
        raise ValueError(f"optimization.graph.level is {level}; it must be -1, 0, 1 or 2")
    session = {
        option: read(name, parameters[name])
        for name, (option, read) in _SESSION.items()
        if name in parameters
    }
    cuda = {
        name: read(name, parameters[name]) for name, read in _CUDA.items() if name in parameters
    }
    accelerator = _accelerator(optimization.execution_accelerators)
    return EngineOptions(
        **session, optimization=_LEVELS[level], cuda=cuda | accelerator, accelerator=accelerator
    )


def _accelerator(accelerators: Any) -> dict[str, str]:
    """The options of CUDA among the *accelerators*, which are the only ones served."""
    options: dict[str, str] = {}
    for each in (*accelerators.gpu_execution_accelerator, *accelerators.cpu_execution_accelerator):
        if each.name != "cuda" or each in accelerators.cpu_execution_accelerator:
            raise ValueError(
                f"execution accelerator {each.name!r} is not served here: leave it out; cuda is, "
                "on GPUs"
            )
        options |= each.parameters
    for name in ("device_id", "user_compute_stream", "gpu_external_alloc", "gpu_external_free"):
        if name in options:
            raise ValueError(f"option {name!r} of accelerator 'cuda' is chosen by the server")
    return options


def _whole(most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not digits or int(text) > most:
            raise ValueError(f"parameter {name!r} is {text!r}; it must be a number up to {most}")
        return int(text)

    return read


def _one_of(choices: Mapping[str, Any]) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> Any:
        if text.lower() not in choices:
            raise ValueError(
                f"parameter {name!r} is {text!r}; it must be one of {', '.join(choices)}"
            )
        return choices[text.lower()]

    return read


def _shrinkage(name: str, text: str) -> tuple[str, ...]:
    if not _SHRINKAGE.fullmatch(text):
        raise ValueError(f"parameter {name!r} is {text!r}; it must be like cpu:0;gpu:0")
    return tuple(text.split(";"))


_switch = _one_of({"0": False, "1": True, "false": False, "true": True})

# by parameter: the option, and the function that reads its value
_SESSION: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "intra_op_thread_count": ("intra_threads", _whole(_MOST_THREADS)),
    "inter_op_thread_count": ("inter_threads", _whole(_MOST_THREADS)),
    "execution_mode": ("parallel", _one_of({"0": False, "1": True})),
    "enable_mem_arena": ("arena", _switch),
    "enable_mem_pattern": ("memory_pattern", _switch),
    "memory.enable_memory_arena_shrinkage": ("shrinkage", _shrinkage),
    "session.use_device_allocator_for_initializers": ("device_allocator", _switch),
}
# the options of the CUDA provider have the parameters' names
_CUDA: dict[str, Callable[[str, str], str]] = {
    "gpu_mem_limit": lambda name, text: str(_whole(2**64 - 1)(name, text)),
    "arena_extend_strategy": _one_of({"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}),
    "cudnn_conv_algo_search": _one_of({"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}),
    "do_copy_in_default_stream": _one_of({"0": "0", "1": "1"}),
}
NAMES = (*_SESSION, *_CUDA)
