"""Triton from pytriton's wheel: ``python serve_triton.py MODELS PORT BACKEND``.

BACKEND is ``python``, Triton's own with ``triton_model.py``, or ``onnx``, the
C++ of ``triton_onnx.cc``, compiled here; the wheel has no backend of ONNX
Runtime. pytriton's own proxy to a Python function is left out, for it only
takes time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime
import pytriton
from pytriton.utils.distribution import get_libs_path, get_stub_path

HERE = Path(__file__).parent
TRITON = Path(pytriton.__file__).parent / "tritonserver"
CONFIG = """
backend: "{backend}"
max_batch_size: 0
{tensors}
instance_group {{ kind: KIND_CPU count: 1 }}
"""
TENSOR = '{kind} {{ name: "{tensor.name}" data_type: TYPE_FP32 dims: {tensor.shape} }}'


def write_models(models: Path, repository: Path, backend: str) -> None:
    """Triton's repository of all *models*."""
    for path in models.glob("*/model.onnx"):
        folder = repository / path.parent.name
        (folder / "1").mkdir(parents=True)
        shutil.copy(path, folder / "1")
        shutil.copy(HERE / "triton_model.py", folder / "1" / "model.py")
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        tensors = [TENSOR.format(kind="input", tensor=each) for each in session.get_inputs()]
        tensors += [TENSOR.format(kind="output", tensor=each) for each in session.get_outputs()]
        config = CONFIG.format(backend=backend, tensors="\n".join(tensors))
        (folder / "config.pbtxt").write_text(config, "utf-8")


def write_python_backend(backends: Path) -> None:
    """Triton's Python backend, with the stub that is for this Python."""
    shutil.copytree(TRITON / "backends" / "python", backends / "python")
    stub = get_stub_path(f"{sys.version_info.major}.{sys.version_info.minor}")
    shutil.copy(stub, backends / "python")


def write_onnx_backend(backends: Path) -> None:
    """The C++ backend, with the library of the onnxruntime that is installed."""
    folder = backends / "onnx"
    folder.mkdir(parents=True)
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    (folder / "libonnxruntime.so.1").symlink_to(library)
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"]
    command += [f"-o{folder}/libtriton_onnx.so", f"{HERE}/triton_onnx.cc"]
    subprocess.run([*command, f"{folder}/libonnxruntime.so.1"], check=True)


models, port, backend = sys.argv[1:]
work = Path(tempfile.mkdtemp(prefix="triton-"))
write_models(Path(models), work / "models", backend)
write_backend = write_python_backend if backend == "python" else write_onnx_backend
write_backend(work / "backends")
os.environ["LD_LIBRARY_PATH"] = str(get_libs_path())
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
binary = str(TRITON / "bin" / "tritonserver")
arguments = [
    f"--model-repository={work}/models",
    f"--backend-directory={work}/backends",
    "--http-address=127.0.0.1",
    f"--http-port={port}",
    "--allow-grpc=false",
    "--allow-metrics=false",
]
os.execv(binary, [binary, *arguments])  # the process that was started becomes the server
