"""What ONNX Runtime raises, as our errors; its words are those of 1.31."""

import pytest

from workbench.backends.onnx.errors import load_error, run_error
from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted, RunFailed
from workbench.model import ModelId

A = ModelId("a", 1)
CUDA_CALL = (
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:{} std::conditional_t<THRW, "
    "void, onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, const char*, "
    "SUCCTYPE, const char*, const char*, int) [with ERRTYPE = cudaError; bool THRW = true; "
    "SUCCTYPE = cudaError; std::conditional_t<THRW, void, common::Status> = void] "
)


def cuda_failure(what: str) -> Exception:
    """A failed call of CUDA in a run, as ONNX Runtime words it."""
    return Exception(
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
        f"Relu node. Name:'r' Status Message: {CUDA_CALL.format(129)}{CUDA_CALL.format(121)}{what} "
        "; GPU=0 ; hostname=box7 ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/"
        "cuda_allocator.cc ; line=47 ; expr=cudaMalloc((void**)&p, size); "
    )


ARENA = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Expand node. "
    "Name:'' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* "
    "onnxruntime::BFCArena::AllocateRawInternal(size_t) "
)


@pytest.mark.parametrize(
    ("text", "need_nbytes"),
    [
        (ARENA + "Failed to allocate memory for requested buffer of size 32212254720\n",
         32212254720),
        (ARENA + "Available memory of 157286400 is smaller than requested bytes of 419430400",
         419430400),
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc", 0),
        ("CUDA failure 2: out of memory ; GPU=0 ; hostname=h", 0),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0", 0),
        ("CUDNN failure 4004: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0", 0),
    ],
)  # fmt: skip
def test_memory_that_ran_out(text: str, need_nbytes: int) -> None:
    """Memory that ran out is told apart, in a load and in a run, with what was asked for."""
    for error in (load_error(A, Exception(text)), run_error(A, Exception(text))):
        assert isinstance(error, MemoryExhausted)
        assert error.need_nbytes == need_nbytes
        assert str(error).startswith("a:1 ")
        assert "onnxruntime_src" not in str(error)
        assert len(str(error).splitlines()) == 1


def test_names_of_nodes_say_nothing_of_shapes() -> None:
    """A run that fails in a node whose name has the word is not the fault of its shapes."""
    text = (
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
        "Cast node. Name:'to shape' Status Message: stod"
    )
    assert isinstance(run_error(A, Exception(text)), RunFailed)


def test_places_in_the_source_are_left_out() -> None:
    """A message has what went wrong, not where in ONNX Runtime's source, also of a lambda."""
    place = "/onnxruntime_src/onnxruntime/core/a.cc:235 onnxruntime::F(const std::string&)"
    for name in (place, f"{place}::<lambda()>", f"{place} [ONNXRuntimeError] : 1 : FAIL :"):
        text = f"[ONNXRuntimeError] : 1 : FAIL : During initialization: {name} no such locale"
        told = str(load_error(A, Exception(text)))
        assert told == "a:1 does not load: During initialization: no such locale"


def test_a_model_of_a_later_opset() -> None:
    """It is told which opset the model may have, and how to have it."""
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : Load model from /m.onnx failed: ONNX Runtime only "
        "*guarantees* support for models stamped with official released onnx opset versions. Opset "
        "30 is under development and support for this is limited. The operator schemas and or "
        "other functionality may change before next ONNX release and in this case ONNX Runtime "
        "will not guarantee backward compatibility. Current official support for domain ai.onnx "
        "is till opset 26."
    )
    assert str(load_error(A, Exception(text))) == (
        "a:1 does not load: it is of opset 30 of ai.onnx, and this ONNX Runtime knows them up to "
        "26: export it for opset 26"
    )


def test_anything_else() -> None:
    """Else the file is to blame for a load, the inputs if the engine says so, or the model."""
    assert isinstance(load_error(A, Exception("no graph")), LoadFailed)
    assert isinstance(run_error(A, ValueError("missing")), InvalidRequest)
    assert isinstance(run_error(A, Exception("a node failed")), RunFailed)


@pytest.mark.parametrize(
    ("what", "remedy"),
    [
        ("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED", ""),
        ("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
         "; install an NVIDIA driver of 580 or newer"),
        ("CUDA failure 3: initialization error",
         "; start it with 'spawn': a fork of a process with CUDA has none"),
        ("CUDA error cudaErrorNoKernelImageForDevice:no kernel image is available",
         "; this build of ONNX Runtime has no code for this kind of GPU"),
        ("CUDA failure 700: an illegal memory access was encountered",
         "; no model can use the GPU until this process is restarted"),
        ("CUDA failure 719: unspecified launch failure",
         "; no model can use the GPU until this process is restarted"),
    ],
)  # fmt: skip
def test_what_cuda_says(what: str, remedy: str) -> None:
    """A failure of CUDA is told without this host's name, and with a remedy if there is one."""
    told = str(run_error(A, cuda_failure(what)))
    place = "Non-zero status code returned while running Relu node. Name:'r' Status Message:"
    assert told == f"a:1 failed: {place} {what}{remedy}"
