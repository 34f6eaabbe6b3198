"""Errors of ONNX Runtime as typed errors with one-line messages."""

from __future__ import annotations

import re

from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted, RunFailed, WorkbenchError
from workbench.model import ModelId

_OUT_OF_MEMORY = re.compile(
    r"Failed to allocate memory|Available memory of|bad_alloc|out of memory|ALLOC_FAILED",
    re.IGNORECASE,
)

_NEED = re.compile(r"(?:requested buffer of size|requested bytes of) (\d+)")

# What a message begins with, and each message that it repeats: a number, a word, and a place in
# ONNX Runtime's source
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_PLACE = re.compile(r"/onnxruntime_src/\S+ .*?\)>? ")
_IR_VERSION = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")


def wake_error(error: Exception) -> WorkbenchError:
    """The error of a first session that could not be made."""
    if _OUT_OF_MEMORY.search(str(error)):
        return _exhausted("ONNX Runtime did not begin, memory ran out", error)
    return LoadFailed(f"ONNX Runtime did not begin: {first_line(error)}")


def load_error(model: ModelId, error: Exception) -> WorkbenchError:
    """The error of a load of *model* that failed."""
    if _OUT_OF_MEMORY.search(str(error)):
        return _exhausted(f"{model} did not load, memory ran out", error)
    return LoadFailed(f"{model} does not load: {first_line(error)}")


def run_error(model: ModelId, error: Exception) -> WorkbenchError:
    """The error of a run of *model* that failed."""
    if _OUT_OF_MEMORY.search(str(error)):
        return _exhausted(f"{model} ran out of memory", error)
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidArgument":
        return InvalidRequest(f"{model} refused its inputs: {first_line(error)}")
    return RunFailed(f"{model} failed: {first_line(error)}")


def _exhausted(what: str, error: Exception) -> MemoryExhausted:
    """The error, with the size of the failed allocation if the message has it."""
    need = _NEED.search(str(error))
    need_nbytes = int(need[1]) if need else 0
    return MemoryExhausted(f"{what}: {first_line(error)}", need_nbytes=need_nbytes)


def without_source(text: str) -> str:
    """A message of ONNX Runtime without its codes, and without places in ONNX Runtime's source."""
    return " ".join(_PLACE.sub(" ", _CODE.sub("", text)).split())


def first_line(error: Exception) -> str:
    """The reason in one line, with a remedy where there is a common one."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    text = without_source(text)
    too_new = _IR_VERSION.search(text)
    if too_new:
        return f"{too_new[0]}: set model.ir_version = {too_new[2]} before onnx.save"
    return text
