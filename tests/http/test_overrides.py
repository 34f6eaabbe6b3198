"""What a load brings along, a configuration and files, over HTTP, one test a rule."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from inside import lease, until
from onnx_models import scaled, written
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from workbench import Workbench
from workbench.model import ModelId
from workbench.stop import CancellationToken

POLLING = "failed to load 'm': "
LOAD = "/v2/repository/models/m/load"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of a model *m*, versions 1 and 2, which multiply by 1 and 2."""
    for version in (1, 2):
        folder = tmp_path / "models" / "m" / str(version)
        scaled(folder / "model.onnx", version, "n, 1")
    return tmp_path / "models"


@pytest.fixture
def spare(tmp_path: Path) -> bytes:
    """The file of a model that multiplies by 7."""
    return scaled(tmp_path / "spare.onnx", 7.0, "n, 1").read_bytes()


@pytest.fixture
def served(root: Path) -> Iterator[Workbench]:
    with Workbench(root, load="explicit", device="cpu") as workbench:
        yield workbench


@pytest.fixture
def triton(served: Workbench) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(served.url.removeprefix("http://")) as client:
        yield client


def factor_of(client: InferenceServerClient, name: str = "m", version: str = "") -> float:
    """What the model multiplies by."""
    one = InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.ones((1, 1), np.float32))
    answer = client.infer(name, [one], version).as_numpy("y")
    return float(answer[0, 0])


def batch_of(client: InferenceServerClient) -> int:
    size: int = client.get_model_config("m")["max_batch_size"]
    return size


def config(**fields: Any) -> str:
    return json.dumps(fields)


def index_of(client: InferenceServerClient) -> dict[tuple[str, str], str]:
    rows = client.get_model_repository_index()
    return {(row["name"], row["version"]): row["state"] for row in rows}


# ── a configuration ─────────────────────────────────────────────────────────


def test_a_configuration(triton: InferenceServerClient) -> None:
    """It is in place of the folder's, completed from the file, of a model that is loaded or not."""
    triton.load_model("m", config=config(max_batch_size=8))
    assert batch_of(triton) == 8
    assert triton.get_model_config("m")["input"][0]["dims"] == [1]
    triton.load_model("m", config=config(max_batch_size=4, version_policy={"all": {}}))
    assert batch_of(triton) == 4
    assert (factor_of(triton, version="1"), factor_of(triton)) == (1.0, 2.0)


def test_a_configuration_lasts(triton: InferenceServerClient, root: Path) -> None:
    """A load without one keeps it, until the folder's own is another one."""
    (root / "m" / "config.pbtxt").write_text("max_batch_size: 2")
    triton.load_model("m", config=config(max_batch_size=8))
    triton.load_model("m")
    assert batch_of(triton) == 8
    (root / "m" / "config.pbtxt").write_text("max_batch_size: 3")
    triton.load_model("m")
    assert batch_of(triton) == 3


def test_an_unload_forgets_it(triton: InferenceServerClient) -> None:
    """After an unload the folder's own counts again."""
    triton.load_model("m", config=config(max_batch_size=8))
    triton.unload_model("m")
    triton.load_model("m")
    assert batch_of(triton) == 0


def test_a_configuration_that_the_file_contradicts(triton: InferenceServerClient) -> None:
    """A load that fails for its configuration leaves all as it was."""
    triton.load_model("m", config=config(max_batch_size=8))
    wrong = config(input=[{"name": "z", "data_type": "TYPE_FP32", "dims": [1]}])
    with pytest.raises(InferenceServerException, match="declares input 'z'"):
        triton.load_model("m", config=wrong)
    assert batch_of(triton) == 8
    triton.load_model("m")
    assert batch_of(triton) == 8


# ── files ───────────────────────────────────────────────────────────────────


def test_files(triton: InferenceServerClient, spare: bytes) -> None:
    """Only the versions that came are served, from the files that came."""
    triton.load_model("m", config="{}", files={"file:5/model.onnx": spare})
    assert factor_of(triton) == factor_of(triton, version="5") == 7.0
    assert triton.get_model_metadata("m")["versions"] == ["5"]
    assert index_of(triton) == {("m", "5"): "READY"}
    with pytest.raises(InferenceServerException):
        factor_of(triton, version="2")


def test_several_files_of_a_version(triton: InferenceServerClient, spare: bytes) -> None:
    """A version with two files counts once where the latest versions are chosen."""
    files = {f"file:{path}": spare for path in ("5/model.onnx", "5/more", "4/model.onnx")}
    policy = {"version_policy": {"latest": {"num_versions": 2}}}
    triton.load_model("m", config=json.dumps(policy), files=files)
    assert triton.get_model_metadata("m")["versions"] == ["4", "5"]


def test_files_with_the_configuration_that_it_had(
    triton: InferenceServerClient, tmp_path: Path
) -> None:
    """Files that came take effect though their configuration, and their version, did not change."""
    for factor in (5.0, 6.0, 6.0):
        content = scaled(tmp_path / "spare.onnx", factor, "n, 1").read_bytes()
        triton.load_model("m", config="{}", files={"file:2/model.onnx": content})
        assert factor_of(triton) == factor


def test_a_load_without_them_undoes_it(triton: InferenceServerClient, spare: bytes) -> None:
    """A plain load serves the folder again."""
    triton.load_model("m", config="{}", files={"file:5/model.onnx": spare})
    triton.load_model("m")
    assert factor_of(triton) == 2.0
    assert triton.get_model_metadata("m")["versions"] == ["2"]


def test_a_model_of_files_only(triton: InferenceServerClient, spare: bytes) -> None:
    """It is in the index, and served until it is unloaded; a plain load cannot load it again."""
    triton.load_model("new", config="{}", files={"file:1/model.onnx": spare})
    assert factor_of(triton, "new") == 7.0
    assert index_of(triton)["new", "1"] == "READY"
    with pytest.raises(InferenceServerException, match="load it with them again"):
        triton.load_model("new")
    assert factor_of(triton, "new") == 7.0
    triton.unload_model("new")
    assert not any(name == "new" for name, _ in index_of(triton))
    with pytest.raises(InferenceServerException, match="there is no model 'new'"):
        triton.load_model("new")


def test_nothing_is_kept_of_it(
    served: Workbench, triton: InferenceServerClient, spare: bytes
) -> None:
    """Once it is unloaded, or its load failed: clients may bring new names without end."""
    triton.load_model("new", config="{}", files={"file:1/model.onnx": spare})
    assert factor_of(triton, "new") == 7.0
    triton.load_model("m", config="{}", files={"file:1/model.onnx": spare})
    assert factor_of(triton) == 7.0
    for name in ("new", "m"):
        triton.unload_model(name)
    with pytest.raises(InferenceServerException):
        triton.load_model("wrong", config="{}", files={"file:1/model.onnx": b"nonsense"})
    assert [status.id.name for status in served._core.status.counted().models] == ["m"]
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'model="m"' in metrics
    assert 'model="new"' not in metrics
    assert 'model="wrong"' not in metrics


def test_a_name_with_a_slash(
    served: Workbench, triton: InferenceServerClient, spare: bytes
) -> None:
    """A model of files may have any name that a model may have: it names no file."""
    parameters = {"config": "{}", "file:1/model.onnx": base64.b64encode(spare).decode()}
    url = f"{served.url}/v2/repository/models/team%2Fnew/load"
    assert httpx.post(url, json={"parameters": parameters}).status_code == 200
    assert index_of(triton)["team/new", "1"] == "READY"
    one = np.ones((1, 1), np.float32)
    assert np.asarray(served.infer("team/new", one)).tolist() == [[7.0]]


def test_its_files_go_with_it(
    served: Workbench, spare: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came with a load is removed when it is replaced, unloaded, or the server stops."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    def kept() -> int:
        return sum(path.is_file() for path in (tmp_path / "temporary").rglob("*"))

    with InferenceServerClient(served.url.removeprefix("http://")) as client:
        for _ in range(2):
            client.load_model("m", config="{}", files={"file:5/model.onnx": spare})
            assert kept() == 1
        with pytest.raises(InferenceServerException):
            client.load_model("m", config="{}", files={"file:5/model.onnx": b"nonsense"})
        assert kept() == 1
        client.unload_model("m")
        assert kept() == 0
        client.load_model("new", config="{}", files={"file:5/model.onnx": spare})
        served.stop()
        assert kept() == 0


def test_its_files_go_though_an_ensemble_used_it(
    served: Workbench, root: Path, spare: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load of an ensemble looks at its parts, also at one that is loaded, and keeps nothing."""
    (root / "e" / "1").mkdir(parents=True)
    tensor = '{ name: "a" data_type: TYPE_FP32 dims: [-1, 1] }'
    other = tensor.replace('"a"', '"b"')
    maps = 'input_map { key: "x" value: "a" } output_map { key: "y" value: "b" }'
    (root / "e" / "config.pbtxt").write_text(
        f'platform: "ensemble" input {tensor} output {other} '
        f'ensemble_scheduling {{ step {{ model_name: "m" model_version: -1 {maps} }} }}'
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for _ in range(2):
        served._core.models.load_all("m", "{}", {"5/model.onnx": spare})
        served._core.models.load_all("e")
        served._core.models.unload("e")
    served._core.models.unload("m")
    until(lambda: not list((tmp_path / "temporary").iterdir()))


def test_a_load_that_began_keeps_its_files(served: Workbench, spare: bytes) -> None:
    """The files stay where a load has yet to read them, also if others replace them meanwhile."""
    served._core.models.load_all("m", "{}", {"1/model.onnx": spare})
    sources, model = served._core._running().sources, ModelId("m", 1)
    with lease(served._core, "m"):  # the end of the first load would drop what is kept for another
        sources.estimate(model)
        served._core.models.load_all("m", "{}", {"2/model.onnx": spare})
        sources.load(model, CancellationToken()).close()


@pytest.mark.parametrize("broken", ["nonsense", "unknown operator"])
def test_errors_name_files_as_they_came(
    triton: InferenceServerClient, spare: bytes, broken: str
) -> None:
    """Where they are kept meanwhile is nobody's business."""
    content = b"nonsense" if broken == "nonsense" else spare.replace(b"Mul", b"Nul")
    with pytest.raises(InferenceServerException, match=r"5/model\.onnx") as caught:
        triton.load_model("m", config="{}", files={"file:5/model.onnx": content})
    assert "workbench-" not in str(caught.value)


def test_files_of_an_evicted_model(root: Path, spare: bytes) -> None:
    """A model of files comes back after an eviction."""
    with (
        Workbench(root, device="cpu") as served,
        InferenceServerClient(served.url.removeprefix("http://")) as client,
    ):
        client.load_model("new", config="{}", files={"file:1/model.onnx": spare})
        (future,) = served._core._running().residency.make_room(served._core.status.resolve("m"), 1)
        future.result(30)
        assert index_of(client)["new", "1"] == "UNAVAILABLE"
        assert factor_of(client, "new") == 7.0


def test_files_in_folders(triton: InferenceServerClient, tmp_path: Path) -> None:
    """Files may be anywhere in the model's folder: weights, labels, samples of the warm-up."""
    path = written(
        tmp_path / "m.onnx",
        "(float[n, 2] x) => (float[n, 2] y) { y = Mul(x, w) }",
        weights={"w": np.array([3, 5], np.float32)},
    )
    where = {"save_as_external_data": True, "location": "w/part.bin", "size_threshold": 0}
    (tmp_path / "w").mkdir()
    onnx.save(onnx.load(path), path, **where)
    output = {"name": "y", "data_type": "TYPE_FP32", "dims": [2], "label_filename": "labels.txt"}
    data = {"data_type": "TYPE_FP32", "dims": [2], "input_data_file": "raw"}
    sample = {"name": "s", "batch_size": 1, "inputs": {"x": data}}
    files = {
        "file:1/model.onnx": path.read_bytes(),
        "file:1/w/part.bin": (tmp_path / "w" / "part.bin").read_bytes(),
        "file:labels.txt": b"\xef\xbb\xbfthree\nfive\n",
        "file:warmup/raw": np.ones(2, np.float32).tobytes(),
    }
    given = config(max_batch_size=2, output=[output], model_warmup=[sample])
    triton.load_model("deep", config=given, files=files)
    one = InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), np.float32))
    best = InferRequestedOutput("y", binary_data=False, class_count=2)
    answer = triton.infer("deep", [one], outputs=[best]).as_numpy("y").tolist()
    assert answer == [["5.000000:1:five", "3.000000:0:three"]]


NO_PATHS = (
    "1/", "/model.onnx", "/tmp/1/model.onnx", "1/../model.onnx", "../1/model.onnx", "1/..",
    "1/./a", "./1/a", "1//b", "1/a\\b", "..\\1\\a", "1/a/../../../b", "1/\0", "1/\ud800", "",
)  # fmt: skip
OF_NO_VERSION = (
    "model.onnx", "01/model.onnx", "0/model.onnx", "-1/model.onnx", "a/model.onnx", "1",
    "9223372036854775808/model.onnx",
)  # fmt: skip
CONFIGS = {
    "": "Failed to load JSON: ",
    "{": "Failed to load JSON: ",
    '{"max_batch_size": "x"}': "Failed to parse max_batch_size field: ",
    '{"max_batch_sizes": 8}': 'Message type "inference.ModelConfig" has no field named ',
    '{"name": "other"}': "the name 'other' is not that of the folder, 'm'",
    '{"model_operations": {}}': "field 'model_operations' is not honoured here",
    '{"max_batch_size": -1}': "max_batch_size -1 is below 0",
    '{"output": [{"name": "y", "data_type": "TYPE_FP32", "label_filename": "../m"}]}':
        "label_filename '../m' is not a file",
    '{"parameters": {"tier": {"string_value": "b"}}}': "parameter 'tier' is 'b'",
    "[]": "",
    "5": "",
    "[" * 100_000: "",
    '{"input":' * 100_000: "",
}  # fmt: skip
FILE, NOT_BASE64 = "file:1/model.onnx", "load parameter 'file:1/model.onnx' is not base64: "
NAMED = "must be file:<path in the model's folder>, such as file:1/model.onnx"
SPECIFIC = config(version_policy={"specific": {"versions": [3]}})
MANY = {f"file:{number}/model.onnx": "" for number in range(1, 1002)}


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        *(({"config": each}, told and f"load parameter 'config': {told}")
          for each, told in CONFIGS.items()),
        *(
            ({"config": "{}", f"file:{path}": "eA=="}, f"load parameter {f'file:{path}'!r} {NAMED}")
            for path in NO_PATHS
        ),
        *(
            ({"config": "{}", f"file:{path}": "eA=="}, f"a load parameter {FILE!r} is missing")
            for path in OF_NO_VERSION
        ),
        ({"config": "{}", FILE: "eA==", f"{FILE}/a": "eA=="}, "the files of 'm' cannot be kept"),
        ({FILE: ""}, "a load with files needs their configuration, 'config'"),
        ({"config": "{}", FILE: "%%%"}, NOT_BASE64),
        ({"config": "{}", FILE: "QUI"}, NOT_BASE64),
        ({"config": "{}", FILE: 5}, f"load parameter {FILE!r} must be text, not 5"),
        ({"config": {}}, "load parameter 'config' must be text, not an object"),
        ({"config": " " * (1 << 20) + "{}"},
         "load parameter 'config' is longer than the 1.0 MiB that are read"),
        ({"config": "{}", "file:1/other.onnx": ""}, f"a load parameter {FILE!r} is missing"),
        ({"config": SPECIFIC, "file:1/m": ""},
         "the version_policy in 'config' serves none of versions 1"),
        ({"config": "{}", **MANY}, "a load brings at most 1000 files, not 1001"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_what_cannot_be(served: Workbench, parameters: dict[str, Any], told: str) -> None:
    """What is wrong with what came is a 400 of one line; what was loaded goes on."""
    served.load("m")
    content = json.dumps({"parameters": parameters})
    response = httpx.post(served.url + LOAD, content=content)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error.removeprefix(POLLING).startswith(told)
    assert "\n" not in error
    assert len(error) < 500
    assert np.asarray(served.infer("m", np.ones((1, 1), np.float32))).tolist() == [[2.0]]


def test_files_that_are_too_large(root: Path, spare: bytes) -> None:
    """What a load brings along is bounded as every request is; nothing of it is kept."""
    with Workbench(root, load="explicit", device="cpu", max_request="64KiB") as workbench:
        content = base64.b64encode(spare + bytes(2**16)).decode()
        parameters = {"config": "{}", "file:1/model.onnx": content}
        response = httpx.post(workbench.url + LOAD, json={"parameters": parameters})
        assert response.status_code == 413
        assert workbench._core._repository.overriding("m") is None


@pytest.mark.parametrize("name", ["..", "a%2F..%2Fb", "%00", "a%5Cb"])
def test_names_that_cannot_be(served: Workbench, name: str, spare: bytes) -> None:
    """What is no name of a model is none for a model of files."""
    parameters = {"config": "{}", "file:1/model.onnx": base64.b64encode(spare).decode()}
    url = f"{served.url}/v2/repository/models/{name}/load"
    assert httpx.post(url, json={"parameters": parameters}).status_code in {400, 404}
    assert len(served._core.status.names()) == 1


def test_a_function_has_none(served: Workbench) -> None:
    """A function is not overridden."""

    @served.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
    def f(x: np.ndarray) -> np.ndarray:
        return x

    url = f"{served.url}/v2/repository/models/f/load"
    response = httpx.post(url, json={"parameters": {"config": "{}"}})
    assert response.status_code == 400
    assert response.json()["error"].endswith("'f' is a function, which has no configuration")
