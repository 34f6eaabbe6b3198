"""What a configuration asks of ONNX Runtime reaches it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from inside import opened
from onnx_models import identity, source

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.options import (
    cuda_options,
    prepared_options,
    session_options,
    shrinkage,
)
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.core import ServerCore
from workbench.errors import LoadFailed, RunFailed
from workbench.events import EventLog, OptionIgnored
from workbench.inference import InferRequest
from workbench.model import EngineOptions, ModelId
from workbench.repository import ModelRepository
from workbench.settings import Settings
from workbench.tensor import Tensor

DEFAULTS = EngineOptions()
DEVICE_ALLOCATOR = "session.use_device_allocator_for_initializers"
LEVELS = ort.GraphOptimizationLevel


def test_the_servers_choice() -> None:
    """Unless a configuration says otherwise: the server's threads, no arena, all optimizations."""
    options = session_options(ort, 3)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert not options.enable_cpu_mem_arena
    assert options.enable_mem_pattern
    assert options.graph_optimization_level == LEVELS.ORT_ENABLE_ALL
    assert options.get_session_config_entry(DEVICE_ALLOCATOR) == "1"
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize("threads", [0, 2])
def test_threads(threads: int) -> None:
    """Threads are as many as wanted, and never spin."""
    wanted = EngineOptions(intra_threads=threads, inter_threads=threads, parallel=True)
    options = session_options(ort, 7, wanted=wanted)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (threads, threads)
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    for kind in ("intra", "inter"):
        assert options.get_session_config_entry(f"session.{kind}_op.allow_spinning") == "0"


def test_memory() -> None:
    """The arena, its pattern and the place of weights are as wanted."""
    wanted = EngineOptions(arena=True, memory_pattern=False, device_allocator=False)
    options = session_options(ort, wanted=wanted)
    assert options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry(DEVICE_ALLOCATOR) == "0"


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("all", LEVELS.ORT_ENABLE_ALL),
        ("extended", LEVELS.ORT_ENABLE_EXTENDED),
        ("basic", LEVELS.ORT_ENABLE_BASIC),
        ("none", LEVELS.ORT_DISABLE_ALL),
    ],
)
def test_levels(name: str, level: Any) -> None:
    """Each level is ONNX Runtime's; what is prepared was optimized before."""
    wanted = EngineOptions(optimization=name)
    assert session_options(ort, wanted=wanted).graph_optimization_level == level
    prepared = prepared_options(ort, 1, 0, wanted, mapped=False)
    assert prepared.graph_optimization_level == LEVELS.ORT_DISABLE_ALL


def test_options_of_cuda() -> None:
    """What is wanted of CUDA wins, but for the device, and for graphs, which have a field."""
    wanted = EngineOptions(cuda={"gpu_mem_limit": "1", "device_id": "7", "enable_cuda_graph": "1"})
    assert cuda_options(2, wanted) == {
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "cudnn_conv_use_max_workspace": "0",
        "gpu_mem_limit": "1",
        "enable_cuda_graph": "0",
        "device_id": "2",
    }


@pytest.mark.parametrize(
    ("asked", "arena", "gpu", "shrinks"),
    [
        (("cpu:0",), True, None, "cpu:0"),
        (("cpu:0",), False, None, ""),
        (("gpu:0",), True, None, "cpu:0"),
        ((), True, None, "cpu:0"),
        ((), False, None, ""),
        (("gpu:0", "cpu:0"), True, 3, "cpu:0;gpu:3"),
        (("gpu:0",), False, 0, "gpu:0"),
        ((), True, 0, ""),
    ],
)
def test_arenas_that_shrink(
    asked: tuple[str, ...], arena: bool, gpu: int | None, shrinks: str
) -> None:
    """Arenas that the session has shrink, a CPU's always: of others ONNX Runtime makes an error."""
    assert shrinkage(EngineOptions(arena=arena, shrinkage=asked), gpu) == shrinks


def answer(backend: OnnxBackend, path: Path, engine: EngineOptions) -> list[float]:
    session = backend.load(source(path, engine=engine))
    try:
        (tensor,) = session.run({"x": Tensor("FP32", np.array([1.5], np.float32))}, ["y"])
        values: list[float] = tensor.array.tolist()
        return values
    finally:
        session.close()


def test_a_model_with_all_of_them(tmp_path: Path) -> None:
    """A model loads and answers with every option set; those of CUDA are ignored, and told of."""
    log = EventLog()
    backend = OnnxBackend(log=log)
    engine = EngineOptions(
        2, 2, True, True, False, False, ("cpu:0", "gpu:0"), "basic", {"gpu_mem_limit": "1"}
    )
    assert answer(backend, identity(tmp_path / "m.onnx"), engine) == [1.5]
    (entry,) = log.since()
    assert entry.event == OptionIgnored(ModelId("m", 1), "options of CUDA", "no GPU is used")


def test_what_was_prepared_is_fully_optimized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is to be optimized less is not taken from what was prepared."""
    looked: list[object] = []

    def find(self: PreparedModels, model: object, file: object, runtime: str) -> None:
        looked.append(file)

    monkeypatch.setattr(PreparedModels, "find", find)
    prepared = PreparedModels(tmp_path / "cache", 2**30, EventLog())
    backend = OnnxBackend(prepared=prepared)
    path = identity(tmp_path / "m.onnx")
    answer(backend, path, EngineOptions(optimization="extended"))
    assert looked == []
    answer(backend, path, DEFAULTS)
    assert len(looked) == 1
    prepared.close()


# ── reshape ─────────────────────────────────────────────────────────────────


def reshaped(folder: Path, file: tuple[object, ...], dims: str, wanted: str) -> None:
    """Write a model of the file's shape, whose clients see the *dims*."""
    identity(folder / "m" / "model.onnx", dims=file)
    tensor = f"data_type: TYPE_FP32 dims: [{dims}] reshape {{ shape: [{wanted}] }}"
    config = f'max_batch_size: 8 input {{ name: "x" {tensor} }} output {{ name: "y" {tensor} }}'
    (folder / "m" / "config.pbtxt").write_text(config)


@pytest.mark.parametrize(
    ("file", "dims", "wanted", "sent"),
    [
        (("n",), "1", "", (2, 1)),
        (("n", 3, 4), "12", "3, 4", (5, 12)),
        (("n", "h", "w"), "-1, -1, 1", "-1, -1", (2, 3, 4, 1)),
        (("n", "h", 4), "2, -1, 2", "-1, 4", (2, 2, 3, 2)),
    ],
)
def test_reshape(
    tmp_path: Path, file: tuple[object, ...], dims: str, wanted: str, sent: tuple[int, ...]
) -> None:
    """Clients see the dims; the model gets and gives its own shape, of the same elements."""
    reshaped(tmp_path, file, dims, wanted)
    with opened(ServerCore(Settings.of(tmp_path, environ={}, device="cpu"))) as core:
        core.models.load("m")
        declared = (-1, *(int(dim) for dim in dims.split(",")))
        assert core.status.signature("m").inputs["x"].shape == declared
        values = np.arange(np.prod(sent), dtype=np.float32).reshape(sent)
        (y,) = core.requests.infer(InferRequest("m", {"x": Tensor.of(values)})).outputs.values()
        assert y.array.shape == sent
        assert np.array_equal(y.array, values)


def test_a_reshape_that_the_model_has_not(tmp_path: Path) -> None:
    """The reshaped shape is held against the file."""
    reshaped(tmp_path, ("n", 3, 5), "12", "3, 4")
    with pytest.raises(LoadFailed) as caught:
        OnnxBackend().inspect(ModelRepository(tmp_path).find("m").source())
    assert str(caught.value) == (
        "config.pbtxt of m:1 declares input 'x' with shape [-1, 3, 4]; the file says [-1, 3, 5]"
    )


def test_an_output_that_does_not_fit_its_reshape(tmp_path: Path) -> None:
    """What the file does not say is found in the run, and fails that, not the server."""
    identity(tmp_path / "m" / "model.onnx", dims=("n",))
    (tmp_path / "m" / "config.pbtxt").write_text(
        'output { name: "y" data_type: TYPE_FP32 dims: [2, 3] reshape { shape: [6] } }'
    )
    with opened(ServerCore(Settings.of(tmp_path, environ={}, device="cpu"))) as core:
        core.models.load("m")
        six, five = (
            InferRequest("m", {"x": Tensor.of(np.ones(size, np.float32))}) for size in (6, 5)
        )
        assert core.requests.infer(six).outputs["y"].shape == (2, 3)
        with pytest.raises(RunFailed, match="do not fit their reshape"):
            core.requests.infer(five)
