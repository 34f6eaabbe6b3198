"""Cases of Triton's own suites and clients, each named by where it is tested there."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from grpc_calls import Caller, message
from onnx_models import identity, written

from workbench import Workbench

PIPE = """{ports} ensemble_scheduling {{ step {{
    model_name: "{part}" model_version: -1
    input_map {{ key: "x" value: "in" }} output_map {{ key: "y" value: "out" }} }} }}"""
PORTS = (
    'input {{ name: "in" data_type: TYPE_FP32 dims: {0} }} '
    'output {{ name: "out" data_type: TYPE_FP32 dims: {0} {1} }}'
)


class Folder:
    """Models in a folder, and clients of servers of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._opened = ExitStack()

    def onnx(self, name: str, config: str = "", *, versions: str = "1", **model: Any) -> None:
        """A model that answers what it is given, unless ``write`` writes another file."""
        write = model.pop("write", identity)
        for version in versions.split():
            (self.root / name / version).mkdir(parents=True)
            write(self.root / name / version / "model.onnx", **model)
        (self.root / name / "labels.txt").write_text("cat\ndog\nbird\n")
        if config:
            (self.root / name / "config.pbtxt").write_text(config)

    def ensemble(self, name: str, part: str, dims: str = "[ -1 ]", output: str = "") -> None:
        """One whose only step is *part*, from x to y."""
        (self.root / name).mkdir()
        (self.root / name / "labels.txt").write_text("one\ntwo\nthree\n")
        config = PIPE.format(ports=PORTS.format(dims, output), part=part)
        (self.root / name / "config.pbtxt").write_text(config)

    def serve(self, **settings: Any) -> httpx.Client:
        """A client of a server that loads on demand, unless told otherwise."""
        workbench = self._opened.enter_context(Workbench(self.root, device="cpu", **settings))
        return self._opened.enter_context(httpx.Client(base_url=workbench.url))

    def close(self) -> None:
        """End all that was opened."""
        self._opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.close()


def given(data: Any, shape: list[int], name: str = "in", datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def infer(client: httpx.Client, model: str, *inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The whole answer."""
    response = client.post(f"/v2/models/{model}/infer", json={"inputs": inputs, **more})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def classes(count: int, name: str = "out", **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "parameters": {"classification": count, **more}}]


def mean(path: Path) -> None:
    """The mean, whose last bits depend on the order of the additions."""
    written(path, "(float[n] x) => (float[1] y) { y = ReduceMean <keepdims = 1> (x) }")


# ── classification ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(("own", "label"), [("", "dog"), ('label_filename: "labels.txt"', "two")])
def test_l0_infer_classification_of_an_ensemble(folder: Folder, own: str, label: str) -> None:
    """L0_infer, ensemble_image_client: classes have the part's labels, or the ensemble's own."""
    output = 'output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" }'
    folder.onnx("part", output)
    folder.ensemble("inner", "part", output=own)
    config = PIPE.replace('"x"', '"in"').replace('"y"', '"out"')
    (folder.root / "outer").mkdir()
    text = config.format(ports=PORTS.format("[ -1 ]", ""), part="inner")
    (folder.root / "outer" / "config.pbtxt").write_text(text)
    client = folder.serve()
    for model in ("inner", "outer"):
        answer = infer(client, model, given([1, 9, 3], [3]), outputs=classes(1))
        assert answer["outputs"][0]["data"] == [f"9.000000:1:{label}"]


PART_OF_4 = """max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
    output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }"""


# ── ensembles ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batch", [0, 4])
def test_l0_simple_ensemble_reshape(folder: Folder, batch: int) -> None:
    """An ensemble whose tensors have other shapes than its parts': reshape is honoured."""
    free = ["n"] if batch else []
    folder.onnx("part", f"max_batch_size: {batch}" if not batch else PART_OF_4, dims=[*free, 4])
    tensor = "data_type: TYPE_FP32 dims: [ 2, 2 ] reshape: { shape: [ 4 ] }"
    ports = f'input {{ name: "in" {tensor} }} output {{ name: "out" {tensor} }}'
    (folder.root / "pipe").mkdir()
    text = f"max_batch_size: {batch} " + PIPE.format(ports=ports, part="part")
    (folder.root / "pipe" / "config.pbtxt").write_text(text)
    client = folder.serve()
    declared = client.get("/v2/models/pipe").json()
    shape = [-1, 2, 2] if batch else [2, 2]
    assert declared["inputs"][0]["shape"] == declared["outputs"][0]["shape"] == shape
    sent = [3, 2, 2] if batch else [2, 2]
    data = [float(each) for each in range(12 if batch else 4)]
    for _ in range(3):  # in threads first, then on the spot
        (output,) = infer(client, "pipe", given(data, sent))["outputs"]
        assert (output["shape"], output["data"]) == (sent, data)


# ── what JSON says ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("blob", [b"\x00\x00\x80\x3f", b"\xff\xff\xff\xff"])
def test_binary_without_its_header_length(folder: Folder, blob: bytes) -> None:
    """L0_http: binary data without the length of the JSON is told which header is missing."""
    folder.onnx("same")
    entry = {"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}
    body = json.dumps({"inputs": [entry]}).encode() + blob
    response = folder.serve().post("/v2/models/same/infer", content=body)
    assert response.status_code == 400
    assert "Inference-Header-Content-Length" in response.json()["error"]


def test_last_bits_whatever_the_length_of_the_header(folder: Folder) -> None:
    """Replay of Triton's recordings: the same tensor has the same answer behind any JSON."""
    folder.onnx("mean", write=mean)
    client, answers = folder.serve(), set()
    numbers = np.random.default_rng(0).standard_normal(4099).astype(np.float32)
    shared = {"parameters": {"binary_data_size": numbers.nbytes}}
    entry = {"name": "x", "datatype": "FP32", "shape": [4099], **shared}
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    for length in range(1, 65):
        head = json.dumps({"id": "i" * length, "inputs": [entry], "outputs": outputs}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        content = head + numbers.tobytes()
        response = client.post("/v2/models/mean/infer", content=content, headers=headers)
        assert response.status_code == 200, response.text
        answers.add(response.content[-4:])
    assert len(answers) == 1


@pytest.mark.parametrize("begin", [1, 29, 64])
@pytest.mark.parametrize("pieces", [1, 5])
def test_large_tensors_are_placed_where_they_are_aligned(begin: int, pieces: int) -> None:
    """A large tensor is received where the engine can take it as it lies, behind any JSON."""
    numbers = np.arange(50_000, dtype=np.float32)
    addresses = []
    with Workbench(device="cpu", token="off") as workbench, ExitStack() as stack:

        @workbench.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def place(x: Any) -> Any:
            addresses.append(x.ctypes.data % 64)
            return x[-1:]

        entry = {"name": "x", "datatype": "FP32", "shape": [50_000]}
        entry["parameters"] = {"binary_data_size": numbers.nbytes}
        head = json.dumps({"id": "i" * begin, "inputs": [entry]}).encode()
        host, port = workbench.url.removeprefix("http://").split(":")
        body = head + numbers.tobytes()
        lines = f"POST /v2/models/place/infer HTTP/1.1\r\nHost: {host}:{port}\r\n"
        lines += f"Content-Length: {len(body)}\r\n"
        lines += f"Inference-Header-Content-Length: {len(head)}\r\n\r\n"
        connection = stack.enter_context(socket.create_connection((host, int(port))))
        for _ in range(3):  # a head that came before is known
            connection.sendall(lines.encode())
            for part in np.array_split(np.frombuffer(body, np.uint8), pieces):
                connection.sendall(part.tobytes())
            reply = b""
            while b"49999" not in reply:
                reply += connection.recv(2**16)
            assert reply.startswith(b"HTTP/1.1 200 ")
    assert addresses == [0] * 3


def test_last_bits_over_grpc_whatever_comes_before(folder: Folder) -> None:
    """The same tensor has the same answer behind any id, in small requests and in large ones."""
    folder.onnx("mean", write=mean)
    with Workbench(folder.root, device="cpu", grpc_port=0) as workbench:
        call = Caller(workbench.grpc_url)
        for count in (67, 4099, 50_003):
            numbers = np.random.default_rng(0).standard_normal(count).astype(np.float32)
            answers = set()
            for length in range(65):
                asked = message("ModelInferRequest", model_name="mean", id="i" * length)
                asked.inputs.add(name="x", datatype="FP32", shape=[count])
                asked.raw_input_contents.append(numbers.tobytes())
                reply = call("ModelInfer", asked)
                answers.add(reply.raw_output_contents[0])
            assert len(answers) == 1
        call.channel.close()


# ── scalars ─────────────────────────────────────────────────────────────────

SCALARS = """max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [ ] }
    output { name: "y" data_type: TYPE_FP32 dims: [ ] }"""


@pytest.mark.parametrize(
    ("config", "dims", "shapes"), [("", (), ([], [1])), (SCALARS, ["n"], ([3], [3, 1]))]
)
@pytest.mark.parametrize("binary", [False, True])
def test_l0_scalar_io(
    folder: Folder, config: str, dims: Any, shapes: tuple[list[int], ...], binary: bool
) -> None:
    """L0_scalar_io: a scalar has shape [] or, from Triton's clients, [1]; the answer has it too."""
    folder.onnx("scalar", config, dims=dims)
    folder.ensemble("pipe", "scalar", dims="[ ]")
    if config:
        path = folder.root / "pipe" / "config.pbtxt"
        path.write_text("max_batch_size: 4 " + path.read_text())
    client = folder.serve()
    for _ in range(3):  # the texts of the later ones are known
        for model, name, output in (("scalar", "x", "y"), ("pipe", "in", "out")):
            for shape in (*shapes, *shapes):
                data = [7.0, 8.0, 9.0][: shape[0] if shape else 1]
                wanted = [{"name": output, "parameters": {"binary_data": binary}}]
                message = {"inputs": [given(data, shape, name)], "outputs": wanted}
                response = client.post(f"/v2/models/{model}/infer", json=message)
                assert response.status_code == 200, response.text
                length = response.headers.get("inference-header-content-length", 10**6)
                (answer,) = json.loads(response.content[: int(length)])["outputs"]
                assert answer["shape"] == shape
    refused = {"inputs": [given([1, 2], [*shapes[0], 2] if not config else [1, 2], "x")]}
    assert client.post("/v2/models/scalar/infer", json=refused).status_code == 400


@pytest.mark.parametrize("reshape", ["", "reshape: { shape: [ 3 ] }"])
def test_l0_scalar_io_without_a_declared_rank(folder: Folder, reshape: str) -> None:
    """L0_scalar_io: of a file that declares no rank, the dims are those of the configuration."""
    dims = "[ 3, 1 ]" if reshape else "[ 3 ]"
    tensor = f"data_type: TYPE_FP32 dims: {dims} {reshape}"
    config = f'input {{ name: "x" {tensor} }} output {{ name: "y" {tensor} }}'
    folder.onnx("free", config, dims=None)
    client, shape = folder.serve(), [3, 1] if reshape else [3]
    assert client.get("/v2/models/free").json()["inputs"][0]["shape"] == shape
    for _ in range(3):
        (output,) = infer(client, "free", given([1, 2, 3], shape, "x"))["outputs"]
        assert (output["shape"], output["data"]) == (shape, [1, 2, 3])
    message = {"inputs": [given([1], [1], "x")]}
    assert client.post("/v2/models/free/infer", json=message).status_code == 400


# ── lifecycle ───────────────────────────────────────────────────────────────


def index(client: httpx.Client) -> dict[tuple[str, str], tuple[str, str]]:
    """State and reason of each version."""
    rows = client.post("/v2/repository/index").json()
    return {(r["name"], r["version"]): (r["state"], r.get("reason", "")) for r in rows}


def test_l0_lifecycle_broken_part(folder: Folder) -> None:
    """The load of an ensemble fails, and names the part that cannot be loaded."""
    folder.onnx("part")
    (folder.root / "part" / "1" / "model.onnx").write_bytes(b"junk")
    folder.ensemble("pipe", "part")
    client = folder.serve(load="explicit")
    response = client.post("/v2/repository/models/pipe/load")
    assert response.status_code == 400
    assert "part" in response.json()["error"]
    assert index(client)["pipe", "1"][0] == "UNAVAILABLE"
