"""Errors of ONNX Runtime as typed errors with one-line messages."""

from __future__ import annotations

import re

from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted, RunFailed, WorkbenchError
from workbench.exhaustion import is_exhaustion
from workbench.model import ModelId

# Words for shapes in the message of a node, after its name, in which they say nothing
_OF_SHAPES = re.compile(
    r"Status Message:.*\b(shape|rank|(num_)?dim|(num)?dimension|\dD|axis|axes|channel|feature|"
    r"batch size|broadcast)s?\b",
    re.IGNORECASE,
)

_NEED = re.compile(r"(?:requested buffer of size|requested bytes of) (\d+)")

# What a message begins with, and each message that it repeats: a number, a word, and a place in
# ONNX Runtime's source
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_PLACE = re.compile(r"/onnxruntime_src/\S+ .*?\)>? (\[with \w+ = [^]]*\] )?")
# ... and the end of an error of CUDA: the name of this host, a place, and the call that failed
_CUDA_CALL = re.compile(r" ; GPU=-?\d+ ; hostname=.*")
_OPSET = re.compile(r"Opset (\d+) is under development .*for domain (\S+) is till opset (\d+)")
_IR_VERSION = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")

GUARDS = "workbench/guard"
"""With this begin the names of nodes that ``guarded`` adds; that of one that fails says why."""
_GUARD = re.compile(
    rf"Name:'\w*{GUARDS}/\d+/\d+/(.*)' Status Message: .*(?:division by zero|cannot be reshaped)"
)

# Errors of CUDA with a common remedy. The last are those after which, by NVIDIA's documentation,
# "the process must be terminated and relaunched".
_CUDA_REMEDIES = {
    re.compile("no kernel image"): "this build of ONNX Runtime has no code for this kind of GPU",
    re.compile("failure 3: init"): "start it with 'spawn': a fork of a process with CUDA has none",
    re.compile("driver version is insufficient"): "install an NVIDIA driver of 580 or newer",
    re.compile(
        "illegal memory access|launch timed out|device-side assert|hardware stack error|"
        "illegal instruction|misaligned address|global/shared address space|"
        "invalid program counter|unspecified launch failure"
    ): "no model can use the GPU until this process is restarted",
}


def wake_error(error: Exception) -> WorkbenchError:
    """The error of a first session that could not be made."""
    if is_exhaustion(error):
        return _exhausted("ONNX Runtime did not begin, memory ran out", error)
    return LoadFailed(f"ONNX Runtime did not begin: {first_line(error)}")


def load_error(model: ModelId, error: Exception) -> WorkbenchError:
    """The error of a load of *model* that failed."""
    if is_exhaustion(error):
        return _exhausted(f"{model} did not load, memory ran out", error)
    return LoadFailed(f"{model} does not load: {first_line(error)}")


def run_error(model: ModelId, error: Exception) -> WorkbenchError:
    """The error of a run of *model* that failed."""
    if is_exhaustion(error):
        return _exhausted(f"{model} ran out of memory", error)
    guard = _GUARD.search(str(error))
    told = first_line(error)
    of_shapes = isinstance(error, ValueError) or _OF_SHAPES.search(told)
    if guard or of_shapes or type(error).__name__ == "InvalidArgument":
        why = f"{guard[1]}, which the engine cannot take" if guard else told
        return InvalidRequest(f"{model} refused its inputs: {why}")
    return RunFailed(f"{model} failed: {told}")


def _exhausted(what: str, error: Exception) -> MemoryExhausted:
    """The error, with the size of the failed allocation if the message has it."""
    need = _NEED.search(str(error))
    need_nbytes = int(need[1]) if need else 0
    return MemoryExhausted(f"{what}: {first_line(error)}", need_nbytes=need_nbytes)


def without_source(text: str) -> str:
    """A message of ONNX Runtime without its codes, places in its source, and this host's name."""
    return " ".join(_PLACE.sub(" ", _CODE.sub("", _CUDA_CALL.sub("", text))).split())


def first_line(error: Exception) -> str:
    """The reason in one line, with a remedy where there is a common one."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    text = without_source(text)
    too_new = _IR_VERSION.search(text)
    if too_new:
        return f"{too_new[0]}: set model.ir_version = {too_new[2]} before onnx.save"
    if opset := _OPSET.search(text):
        return (
            f"it is of opset {opset[1]} of {opset[2]}, and this ONNX Runtime knows them up to "
            f"{opset[3]}: export it for opset {opset[3]}"
        )
    if "CUDA" in text:
        for symptom, remedy in _CUDA_REMEDIES.items():
            if symptom.search(text):
                return f"{text}; {remedy}"
    return text
