"""A server of its own that ModelMesh places models on, with real models and too little memory."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from modelmesh_driver import ModelMesh
from onnx_models import written

MIB = 2**20
CONTAINER, BUFFER = 160 * MIB, 32 * MIB
ENVIRON = {"CONTAINER_MEM_REQ_BYTES": f"{CONTAINER}", "MEM_BUFFER_BYTES": f"{BUFFER}"}
COMMAND = [sys.executable, "-m", "workbench", "serve", "--modelmesh=port:0", "--grpc-port=0"]


@pytest.fixture
def runtime() -> Iterator[tuple[int, ModelMesh]]:
    """The server's process, and its ModelMesh."""
    command = [*COMMAND, "--port=0", "--device=cpu", "--cache=off"]
    environ = {**os.environ, **ENVIRON}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"gRPC at (\S+) ", process.stdout.readline())
        assert found is not None
        mesh = ModelMesh(found[1], found[1])
        try:
            yield process.pid, mesh
        finally:
            mesh.close()
            process.terminate()


def peak_nbytes(process: int) -> int:
    """The most that *process* held at once since its last load began, without pages of files."""
    text = Path(f"/proc/{process}/status").read_text("ascii")
    peak, files = (re.search(rf"{name}:\s+(\d+) kB", text) for name in ("VmHWM", "RssFile"))
    assert peak is not None
    assert files is not None
    return 1024 * (int(peak[1]) - int(files[1]))


def test_more_models_than_memory(runtime: tuple[int, ModelMesh], tmp_path: Path) -> None:
    """No load is refused, two at once, and the process stays within its container's memory."""
    process, mesh = runtime
    chance, paths = random.Random(49), {}
    for number in range(10):
        weights = np.random.default_rng(number).random(((3 + 2 * number) * 256, 1024), np.float32)
        graph = f"(float[n, {len(weights)}] x) => (float[n, 1024] y) {{ y = MatMul(x, w) }}"
        paths[f"m{number}"] = str(tmp_path / f"m{number}.onnx")
        written(tmp_path / f"m{number}.onnx", graph, weights={"w": weights})
    mesh.poll()
    begun: dict[str, grpc.Future] = {}
    loads = most_nbytes = 0
    for _ in range(40):
        if chance.random() < 0.6 and len(begun) < 2:
            model = chance.choice([each for each in paths if each not in mesh.sizes])
            load = mesh.begin_load(model, paths[model], loading=begun)
            begun |= {model: load} if load is not None else {}
        else:
            for model, load in begun.items():
                mesh.end_load(model, load)
            loads += len(begun)
            begun.clear()
            most_nbytes = max(most_nbytes, peak_nbytes(process))
    assert loads > 10
    assert sum(mesh.known.values()) > mesh.capacity
    assert mesh.capacity < most_nbytes <= CONTAINER
