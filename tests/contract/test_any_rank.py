"""Models whose file does not say how many dimensions a tensor has: any shape goes to the engine."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx_models import identity, written

from workbench import Workbench
from workbench.errors import InvalidRequest

SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (1, 1), (0,), (2, 0), (1, 2, 1, 2)]
PAIR = "(float[] x, float[] y) => (float[] z) { z = Add(x, y) }"
ENSEMBLE = """input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2, -1 ] }
ensemble_scheduling { step { model_name: "any" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }"""
PARTS = "(float[] x, float s) => (float[] y, float[] s2) { y = Identity(x) s2 = Neg(s) }"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    root = tmp_path_factory.mktemp("models")
    identity(root / "any.onnx", dims=None)
    identity(root / "text.onnx", "BYTES", dims=None)
    written(root / "pair.onnx", PAIR)
    written(root / "parts.onnx", PARTS)
    identity(root / "dims" / "1" / "model.onnx", dims=None)
    (root / "dims" / "config.pbtxt").write_text(
        'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }'
    )
    (root / "pipe" / "1").mkdir(parents=True)
    (root / "pipe" / "config.pbtxt").write_text(ENSEMBLE)
    with Workbench(root, device="cpu", grpc_port=0) as workbench:
        yield workbench


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.arange(np.prod(shape)) + 0.5, np.float32).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("binary", [True, False])
def test_http(server: Workbench, shape: tuple[int, ...], binary: bool) -> None:
    """V2 over HTTP, also where the text of the request is known from an earlier one."""
    array = numbers(shape)
    tensor = tritonclient.http.InferInput("x", list(shape), "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    wanted = [tritonclient.http.InferRequestedOutput("y", binary_data=binary)]
    with tritonclient.http.InferenceServerClient(server.url.removeprefix("http://")) as client:
        for _ in range(20):
            answer = client.infer("any", [tensor], outputs=wanted)
            (told,) = answer.get_response()["outputs"]
            assert tuple(told["shape"]) == shape
            np.testing.assert_array_equal(answer.as_numpy("y"), array)


@pytest.mark.parametrize("shape", SHAPES)
def test_grpc(server: Workbench, shape: tuple[int, ...]) -> None:
    """V2 over gRPC, also where the message is known from an earlier one."""
    tensor = tritonclient.grpc.InferInput("x", list(shape), "FP32")
    tensor.set_data_from_numpy(numbers(shape))
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        for _ in range(20):
            answer = client.infer("any", [tensor])
            assert tuple(answer.get_output("y").shape) == shape
            np.testing.assert_array_equal(answer.as_numpy("y"), numbers(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_python(server: Workbench, shape: tuple[int, ...]) -> None:
    """``infer`` in Python adds no dimension, nor does it take one away."""
    answer = server.infer("any", numbers(shape))
    assert np.shape(answer) == shape
    np.testing.assert_array_equal(answer, numbers(shape))


def test_generate_and_raw(server: Workbench) -> None:
    """The generate extension takes shapes as values are nested; a raw body has one dimension."""
    url = f"{server.url}/v2/models/any"
    for value, answer in ((5.0, 5.0), ([1.0, 2.0], [1.0, 2.0]), ([[1.0], [2.0]], [1.0, 2.0])):
        assert httpx.post(f"{url}/generate", json={"x": value}).json()["y"] == answer
    content = np.ones(3, np.float32).tobytes()
    reply = httpx.post(
        f"{url}/infer", content=content, headers={"Inference-Header-Content-Length": "0"}
    )
    assert reply.content.endswith(content)


def test_what_the_engine_refuses(server: Workbench) -> None:
    """Shapes that do not fit each other are 400, on the engine's word."""
    with pytest.raises(InvalidRequest, match="refused its inputs"):
        server.infer("pair", {"x": numbers((2,)), "y": numbers((3,))})
    assert server.infer("pair", {"x": numbers((2, 1)), "y": numbers((2,))}).shape == (2, 2)


def test_metadata_and_configuration(server: Workbench) -> None:
    """A rank that is not known is told as [-1]; a configuration that says so leaves it open."""
    told = {"name": "x", "datatype": "FP32", "shape": [-1]}
    assert httpx.get(f"{server.url}/v2/models/any").json()["inputs"] == [told]
    config = httpx.get(f"{server.url}/v2/models/any/config").json()
    assert config["input"][0]["dims"] == config["output"][0]["dims"] == [-1]
    server.load("any", config=config)
    assert server.infer("any", numbers((2, 3))).shape == (2, 3)
    server.unload("any")


def test_dims_in_the_configuration(server: Workbench) -> None:
    """Other dims in the configuration are the shape that requests are checked against."""
    assert server.infer("dims", numbers((2, 3))).shape == (2, 3)
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 3\], got \[2, 2\]"):
        server.infer("dims", numbers((2, 2)))


def test_a_scalar_beside(server: Workbench) -> None:
    """Where a scalar came with shape [1], answers that are scalars have it; others stay."""
    url = f"{server.url}/v2/models/parts/infer"
    for shape in ([1], []):
        inputs = [
            {"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [1, 2]},
            {"name": "s", "datatype": "FP32", "shape": shape, "data": [1]},
        ]
        outputs = httpx.post(url, json={"inputs": inputs}).json()["outputs"]
        assert [each["shape"] for each in outputs] == [[2, 1], shape]


def test_a_part_of_an_ensemble(server: Workbench) -> None:
    """Such a model fits every ensemble, whose own shapes count."""
    assert server.infer("pipe", numbers((2, 3))).shape == (2, 3)
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 3\], got \[2, 2\]"):
        server.infer("pipe", numbers((2, 2)))
