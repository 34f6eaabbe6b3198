"""SageMaker's contract for containers of multi-model endpoints, row by row, over raw HTTP."""

import errno
import gzip
import http.client
import io
import json
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from inside import until
from onnx_models import identity, loop, written

from doubles import Clock
from workbench import Workbench

CSV = {"content-type": "text/csv"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A server with a model "m" of its own, and nothing of the platform's."""
    root = tmp_path_factory.mktemp("repository")
    identity(root / "m.onnx")
    with Workbench(root, device="cpu", artifact_code="on", max_request="1MiB") as workbench:
        yield workbench


@pytest.fixture
def container(server: Workbench) -> Iterator[httpx.Client]:
    """A client of the server, which has no model of the platform's before and after."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
        while models := client.get("/models").json()["models"]:
            for model in models:
                client.delete(f"/models/{quote(model['modelName'], safe='')}")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """The folder of a model whose output is its input."""
    return fill(tmp_path / "model", {"model.onnx": None})


def load(client: httpx.Client, name: str, url: Path) -> httpx.Response:
    return client.post("/models", json={"model_name": name, "url": str(url)})


def invoke(client: httpx.Client, name: str, body: Any = "[1, 2]", **headers: str) -> Any:
    path = f"/models/{quote(name, safe='')}/invoke"
    return client.post(path, content=body, headers={"content-type": "application/json", **headers})


def listed(client: httpx.Client) -> list[str]:
    return [model["modelName"] for model in client.get("/models").json()["models"]]


def refused(response: httpx.Response, status: int) -> str:
    """The message of an error, which every kind of client finds in its own member."""
    assert response.status_code == status, response.text
    body = response.json()
    assert list(body) == ["code", "type", "message", "error"]
    assert body["code"] == status
    assert body["error"] == body["message"]
    assert body["type"].endswith("Exception")
    assert "\n" not in body["message"]
    return str(body["message"])


# ── GET /ping ───────────────────────────────────────────────────────────────


def test_a_load_with_another_member(
    server: Workbench, container: httpx.Client, artifact: Path
) -> None:
    """A member that the contract does not have does not stop the platform; an event names it."""
    body = {"model_name": "more", "url": str(artifact), "more": 1}
    assert container.post("/models", json=body).status_code == 200
    (told,) = (str(each.event) for each in server.events if each.event.kind == "ignored")
    assert told == "more runs without member 'more': a load has url and model_name"


def test_ping(container: httpx.Client) -> None:
    """The server is healthy while it serves."""
    response = container.get("/ping")
    assert (response.status_code, response.json()) == (200, {"status": "Healthy"})
    assert container.head("/ping").status_code == 200


def test_no_ping_of_a_server_that_stops() -> None:
    """A server whose models are gone, and whose port is still open, is not healthy."""
    with Workbench(device="cpu") as workbench, httpx.Client(base_url=workbench.url) as client:
        workbench._core.close()
        assert refused(client.get("/ping"), 503) == "the server is not running"


def test_nothing_waits_for_a_load(
    container: httpx.Client, server: Workbench, artifact: Path
) -> None:
    """While all threads for loads are taken, and more loads wait, the platform's polls go on."""
    load(container, "a", artifact)
    gate = threading.Event()
    loads = [server._core.soon(gate.wait, waits=True) for _ in range(600)]
    try:
        assert container.get("/ping").status_code == 200
        assert listed(container) == ["a"]
        assert container.get("/models/a").status_code == 200
        assert invoke(container, "a").json() == [1, 2]
        assert not any(each.done() for each in loads)
    finally:
        gate.set()
    assert all(each.result() for each in loads)


# ── POST /models ────────────────────────────────────────────────────────────


def test_load(container: httpx.Client, artifact: Path) -> None:
    """A load answers once the model can be invoked, with the text that AWS' suites assert."""
    response = load(container, "a", artifact)
    assert (response.status_code, response.json()) == (200, {"status": "Workers scaled"})
    assert invoke(container, "a").json() == [1, 2]


def test_aws_trailing_comma(container: httpx.Client, artifact: Path) -> None:
    """The body that AWS' documentation prints, with its trailing comma, is a load."""
    body = f'{{ "model_name" : "a", "url" : "{artifact}", }}'
    assert container.post("/models", content=body).status_code == 200
    body = json.dumps({"model_name": 'b,}"', "url": str(artifact)})
    assert container.post("/models", content=body).status_code == 200
    assert listed(container) == ["a", 'b,}"']


def test_whose_name_a_hash_is(
    container: httpx.Client, server: Workbench, artifact: Path, tmp_path: Path
) -> None:
    """A load is told in the log with the artifact that its header names, also if it fails."""
    end = server._core.events.last
    for name, url, target in (("9f", artifact, "v1/été.tar.gz"), ("2a", tmp_path / "no", "b\x85")):
        headers = {"x-amzn-sagemaker-target-model": target.encode()}
        body = {"model_name": name, "url": str(url)}
        container.post("/models", json=body, headers=headers)
    load(container, "a", artifact)
    events = [entry.event for entry in server._core.events.since(end)]
    assert [event.kind for event in events[:2]] == ["target", "loading"]
    named = [str(event) for event in events if event.kind == "target"]
    assert named == ["9f is 'v1/été.tar.gz'", "2a is 'b\\x85'"]


def test_a_compressed_load(container: httpx.Client, artifact: Path) -> None:
    """The body of a load may be in gzip; what says so and is not is refused."""
    body = json.dumps({"model_name": "a", "url": str(artifact)}).encode()
    headers = {"content-encoding": "gzip"}
    assert "gzip" in refused(container.post("/models", content=body, headers=headers), 400)
    packed = gzip.compress(body)
    assert container.post("/models", content=packed, headers=headers).status_code == 200
    assert listed(container) == ["a"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("17", "not a JSON object"),
        ("", "Parameter url is required."),
        ("{}", "Parameter url is required."),
        ('{"model_name": "a"}', "Parameter url is required."),
        ('{"model_name": "a", "url": ""}', "Parameter url is required."),
        ('{"model_name": "a", "url": null}', "Parameter url is required."),
        ('{"url": "/x"}', "Parameter model_name is required."),
        ('{"model_name": "", "url": "/x"}', "Parameter model_name is required."),
        ('{"model_name": 1, "url": "/x"}', "'model_name' must be text, not 1"),
        ('{"model_name": ["a"], "url": "/x"}', "'model_name' must be text, not an array"),
        ('{"model_name": "a", "url": {}}', "'url' must be text, not an object"),
        ('{"model_name": "a", "url": "models/a"}', "from / on"),
    ],
)
def test_bodies_that_are_no_load(container: httpx.Client, body: str, told: str) -> None:
    """A body that is no load is refused with the reason, and names the member."""
    assert told in refused(container.post("/models", content=body), 400)
    assert listed(container) == []


def test_a_load_by_a_query(container: httpx.Client, artifact: Path) -> None:
    """What multi-model-server takes in a query is refused, and it is said where it belongs."""
    response = container.post("/models", params={"model_name": "a", "url": str(artifact)})
    told = refused(response, 400)
    assert told.startswith("Parameter url is required. SageMaker sends it in the body")
    assert listed(container) == []


def test_a_url_where_nothing_is(container: httpx.Client, tmp_path: Path) -> None:
    """A url that does not exist is 404, as AWS' suites assert."""
    told = refused(load(container, "a", tmp_path / "nowhere"), 404)
    assert told.startswith("Model not found in model store: /")


def fill(folder: Path, files: Mapping[str, str | None]) -> Path:
    """The *folder* with *files* of these texts; ``None`` is the model whose output is its input."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            identity(path)
        else:
            path.write_text(text)
    return folder


def with_code(folder: Path, text: str) -> Path:
    return fill(folder, {"code/inference.py": text})


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "holds no model"),
        ({"model.onnx": "no model"}, "model.onnx"),
        ({"code/inference.py": "raise RuntimeError('on purpose')"}, "RuntimeError: on purpose"),
        (
            {"code/inference.py": "def model_fn(d): raise KeyError(d)\ndef predict_fn(x, m): ..."},
            "KeyError",
        ),
        ({"code/inference.py": "import sys; sys.exit(3)"}, "SystemExit: 3"),
        ({"code/inference.py": "raise KeyboardInterrupt"}, "raised KeyboardInterrupt"),
        (
            {
                "code/inference.py": "def model_fn(d): raise KeyboardInterrupt\n"
                "def predict_fn(x, m): ..."
            },
            "raised KeyboardInterrupt",
        ),
        ({"code/inference.py": "def model_fn(d): ..."}, "must have model_fn, and"),
    ],
)
def test_a_load_that_fails_leaves_nothing(
    container: httpx.Client,
    server: Workbench,
    tmp_path: Path,
    files: dict[str, str | None],
    told: str,
) -> None:
    """The cause is in the answer, nothing is registered, and a right load of the name succeeds."""
    folder = fill(made(tmp_path / "broken"), files)
    assert told in refused(load(container, "a", folder), 400)
    refused(container.get("/models/a"), 404)
    refused(invoke(container, "a"), 404)
    assert server._core.models.added() == {}
    right = fill(tmp_path / "right", {"model.onnx": None})
    assert load(container, "a", right).status_code == 200


def test_a_load_without_files(
    container: httpx.Client, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load for which the system opens no more files is 507, which the platform can cure."""

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("workbench.annexes.sagemaker.layouts._look", full)
        assert "Too many open files" in refused(load(container, "a", artifact), 507)
    assert load(container, "a", artifact).status_code == 200


ENSEMBLE = """
platform: "ensemble"
input [{name: "x" data_type: TYPE_FP32 dims: [-1]}]
output [{name: "y" data_type: TYPE_FP32 dims: [-1]}]
ensemble_scheduling {step [{model_name: "p" model_version: -1
  input_map {key: "x" value: "x"} output_map {key: "y" value: "y"}}]}
"""
ECHO = "def model_fn(d): ...\ndef predict_fn(data, m): return data"


def test_a_name_that_is_taken(container: httpx.Client, artifact: Path) -> None:
    """A second load of a name is 409, of a url under a second name is fine."""
    load(container, "a", artifact)
    assert refused(load(container, "a", artifact), 409) == "Model a is already registered."
    assert load(container, "b", artifact).status_code == 200


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """``of_the_test`` to the code of an artifact, which sets *begun* and waits for *go_on*."""
    events = SimpleNamespace(begun=threading.Event(), go_on=threading.Event())
    monkeypatch.setitem(sys.modules, "of_the_test", events)
    yield events
    events.go_on.set()


GATED = """
import of_the_test
def model_fn(model_dir):
    of_the_test.begun.set()
    assert of_the_test.go_on.wait(30)
def predict_fn(data, model):
    return data
"""


def test_during_a_load(
    container: httpx.Client, artifact: Path, tmp_path: Path, events: SimpleNamespace
) -> None:
    """While a model loads its name is taken, it is in no list, and all others are served."""
    load(container, "other", artifact)
    url = with_code(tmp_path / "gated", GATED)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, container, "a", url)
        assert events.begun.wait(30)
        assert refused(load(container, "a", artifact), 409) == "Model a is already registered."
        assert listed(container) == ["other"]
        refused(container.get("/models/a"), 404)
        refused(container.delete("/models/a"), 404)
        assert refused(invoke(container, "a"), 404) == "Model not found: a"
        assert container.get("/ping").status_code == 200
        assert invoke(container, "other").json() == [1, 2]
        assert not loading.done()
        events.go_on.set()
        assert loading.result().status_code == 200
    assert listed(container) == ["a", "other"]


# ── the layouts of a url ────────────────────────────────────────────────────

TRITON = 'name: "another"\nplatform: "onnxruntime_onnx"'


@pytest.mark.parametrize(
    "files",
    [
        {"model.onnx": None},
        {"net.onnx": None, "README.md": ""},
        {"another/1/model.onnx": None, "another/config.pbtxt": TRITON},
    ],
    ids=", ".join,
)
def test_layouts(container: httpx.Client, tmp_path: Path, files: dict[str, str | None]) -> None:
    """All layouts that are met are served, whatever their folders are called."""
    folder = fill(tmp_path / "model", files)
    assert load(container, "a", folder).status_code == 200
    assert invoke(container, "a").json() == [1, 2]
    assert container.get("/models/a").json() == {"modelName": "a", "modelUrl": str(folder)}


def test_an_ensemble(
    container: httpx.Client, server: Workbench, sample_models: Path, tmp_path: Path
) -> None:
    """Of several folders the ensemble is the model, and the others are only its parts."""
    for name in ("digits_reader", "digits_pixels", "digits_conv", "digits_label"):
        shutil.copytree(sample_models / name, tmp_path / "model" / name)
    load(container, "a", tmp_path / "model")
    assert listed(container) == ["a"]
    image = np.zeros((1, 8, 8, 1), np.uint8)
    told = invoke(container, "a", json.dumps(image.tolist())).json()
    assert set(told) == {"label", "probabilities"}
    container.delete("/models/a")
    assert server.names == ("m",)


CODE = """
import pathlib
import helper
def model_fn(model_dir):
    return (pathlib.Path(model_dir) / "factor.txt").read_text()
def predict_fn(data, model):
    return helper.times(data, float(model))
"""


def coded(folder: Path, factor: int, text: str = CODE) -> Path:
    helper = f"def times(x, y): return x * y + {factor}"
    files = {"code/inference.py": text, "code/helper.py": helper, "factor.txt": str(factor)}
    return fill(folder, files)


def test_code(container: httpx.Client, tmp_path: Path) -> None:
    """The code of an artifact runs as in the toolkit, and each has helpers of its own."""
    load(container, "a", coded(tmp_path / "a", 2))
    load(container, "b", coded(tmp_path / "b", 3))
    assert invoke(container, "a", "[1, 2]").json() == [4, 6]
    assert invoke(container, "b", "[1, 2]").json() == [6, 9]
    answer = invoke(container, "a", "[[1, 2]]", accept="text/csv;q=0.9, image/png;q=0.1")
    assert (answer.headers["content-type"], answer.text) == ("text/csv", "4.0,6.0\n")
    assert container.delete("/models/a").status_code == 200
    refused(invoke(container, "a"), 404)


def test_several_accept_headers_are_one_list(container: httpx.Client, artifact: Path) -> None:
    """As RFC 9110 says: the media type that is liked best is chosen, on whichever line it is."""
    load(container, "a", artifact)
    for path in ("/models/a/invoke", "/invocations"):
        lines = [("accept", "text/csv"), ("accept", "application/json;q=0.5")]
        for accepted in (lines, lines[::-1]):
            headers = [("content-type", "application/json"), *accepted]
            answer = container.post(path, content="[1, 2]", headers=headers)
            assert answer.headers["content-type"] == "text/csv", answer.text


def test_code_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that SAGEMAKER_PROGRAM names is run, and only that one."""
    monkeypatch.setenv("SAGEMAKER_PROGRAM", "serve.py")
    hooks = "def model_fn(d): ...\ndef predict_fn(x, m): return x * 2"
    named = fill(
        tmp_path / "a", {"code/serve.py": hooks, "code/inference.py": "raise RuntimeError"}
    )
    with (
        Workbench(device="cpu", artifact_code="on") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        load(client, "a", named).raise_for_status()
        assert invoke(client, "a", "[1]").json() == [2]
        told = refused(load(client, "b", coded(tmp_path / "b", 1)), 400)
        assert told.endswith("rename the script in code to serve.py")


WHOLE = """
def model_fn(model_dir):
    return 1
def input_fn(body, content_type):
    return [content_type, body]
def predict_fn(data, model):
    if data[1] == "fail":
        raise ValueError("on purpose")
    return data
def output_fn(prediction, accept):
    return str(prediction), "text/x-mine"
"""
TRANSFORM = """
def model_fn(model_dir):
    return "m"
def transform_fn(model, body, content_type, accept):
    return f"{model} {body!r} {content_type} {accept}", accept
"""


def test_code_of_all_functions(container: httpx.Client, tmp_path: Path) -> None:
    """Bodies of text come as text, others as bytes, and answers have the type that they say."""
    load(container, "a", coded(tmp_path / "a", 1, WHOLE))
    answer = invoke(container, "a", "1,2", **CSV)
    assert (answer.headers["content-type"], answer.text) == ("text/x-mine", "['text/csv', '1,2']")
    told = refused(invoke(container, "a", "fail", **CSV), 500)
    assert "ValueError: on purpose" in told
    load(container, "b", coded(tmp_path / "b", 1, TRANSFORM))
    answer = invoke(container, "b", "x", **{"content-type": "image/png", "accept": "text/plain"})
    assert answer.text == "m b'x' image/png text/plain"
    kind = "text/csv; charset=utf-8"
    answer = invoke(container, "b", "1,2", **{"content-type": kind, "accept": "text/plain"})
    assert answer.text == f"m '1,2' {kind} text/plain"


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, "[[1, 2]]", 200),
        (CSV, "1,2", 200),
        ({}, "[1", 400),
        ({}, "[" * 10**5, 400),
        ({}, b"\xff", 400),
        (CSV, b"\xff", 400),
        (CSV, "a,b", 400),
        ({"content-type": "text/libsvm"}, "0 1:1 2:2", 200),
        ({"content-type": "application/x-pickle"}, "x", 415),
        ({"accept": "image/png"}, "[1]", 406),
    ],
)
def test_defaults_of_code(
    container: httpx.Client, tmp_path: Path, headers: dict[str, str], body: str | bytes, status: int
) -> None:
    """Without input_fn and output_fn bodies are arrays, as they are for other models."""
    load(container, "a", coded(tmp_path / "a", 1, ECHO))
    response = invoke(container, "a", body, **headers)
    if status == 200:
        assert response.json() == [[1, 2]]
    else:
        refused(response, status)


ALL_HOOKS = """
from __future__ import annotations
import pickle
from dataclasses import dataclass
import helper
@dataclass
class Model:
    folder: str
    warm: bool = False
def pre_model_fn(model_dir):
    helper.ready = True
def model_fn(model_dir, context):
    from helper import ready
    assert ready
    return pickle.loads(pickle.dumps(Model(context.system_properties["model_dir"])))
def model_warmup_fn(model_dir, model):
    model.warm = model.folder == model_dir
def predict_fn(data, model, context):
    from helper import times
    return {"warm": model.warm, "product": times(data, 2)}
"""


def test_code_with_all_that_the_toolkit_has(container: httpx.Client, tmp_path: Path) -> None:
    """Functions may take a context, import modules when they run, unpickle their own classes."""
    load(container, "a", coded(tmp_path / "a", 1, ALL_HOOKS)).raise_for_status()
    load(container, "b", coded(tmp_path / "b", 5, ALL_HOOKS)).raise_for_status()
    assert invoke(container, "a", "[1]").json() == {"warm": True, "product": [3]}
    assert invoke(container, "b", "[1]").json() == {"warm": True, "product": [7]}


HEADERS = """
import json
def model_fn(model_dir, context):
    context.set_response_header(0, "x-of-the-load", "not told")
    return 0
def input_fn(body, content_type, context):
    return context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")
def predict_fn(attributes, model, context):
    headers = context.get_all_request_header(0)
    mine = context.get_request_header(0, "X-Mine")
    return {"attributes": attributes, "x": mine, "names": list(headers)}
def output_fn(prediction, accept, context):
    if prediction["x"] is not None:
        context.set_response_header(0, *prediction["x"].split("=", 1))
    if prediction["attributes"] is not None:
        context.set_response_status(int(prediction["attributes"]), "told")
    return json.dumps(prediction), "text/x-mine"
"""


def test_code_and_headers(container: httpx.Client, tmp_path: Path) -> None:
    """By its context code reads the headers of its request, and gives its answer more of them."""
    load(container, "a", coded(tmp_path / "a", 1, HEADERS)).raise_for_status()
    attributes = "x-amzn-sagemaker-custom-attributes"
    for encoding in ("identity", "gzip"):  # by the short cut, and by the long way
        body = gzip.compress(b"1") if encoding == "gzip" else b"1"
        given = {"content-encoding": encoding, "authorization": "Bearer x", "cookie": "a=b"}
        answer = invoke(container, "a", body, **given, **{"x-mine": f"{attributes}=c: d"})
        assert answer.headers[attributes] == "c: d"
        assert answer.headers["content-type"] == "text/x-mine"
        told = answer.json()
        assert (told["attributes"], told["x"]) == (None, f"{attributes}=c: d")
        assert not {"authorization", "cookie", "content-length"}.intersection(told["names"])
        answer = invoke(container, "a", body, **given, **{attributes: "418"})
        assert (answer.status_code, answer.json()["attributes"]) == (418, "418")
        assert attributes not in answer.headers
        assert "x-of-the-load" not in answer.headers


def test_a_header_that_an_answer_cannot_have(container: httpx.Client, tmp_path: Path) -> None:
    """What would break the answer is an error of the code."""
    load(container, "a", coded(tmp_path / "a", 1, HEADERS)).raise_for_status()
    answer = invoke(container, "a", **{"x-mine": "Transfer-Encoding=chunked"})
    assert "an answer cannot have" in refused(answer, 500)
    assert invoke(container, "a").status_code == 200


def test_code_by_v2(container: httpx.Client, tmp_path: Path) -> None:
    """Code can be asked by V2 too, where nothing has headers."""
    load(container, "a", coded(tmp_path / "a", 1, ECHO)).raise_for_status()
    names = {"body": "[1]", "content_type": "application/json", "accept": "*/*"}
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [text]}
        for name, text in names.items()
    ]
    answer = container.post("/v2/models/sagemaker%2Fa/infer", json={"inputs": inputs})
    assert [each["data"] for each in answer.json()["outputs"][:1]] == [["[1]"]]


ANSWERS = """
def model_fn(model_dir): ...
def predict_fn(data, model): return PREDICTION
def output_fn(prediction, accept): return prediction
"""


@pytest.mark.parametrize(
    ("prediction", "body"),
    [
        ("{'a': [1]}", b'{"a": [1]}'),
        ("[{'label': 'x'}]", b'[{"label": "x"}]'),
        ("7", b"7"),
        ("None", b"null"),
        ("bytearray(b'x')", b"x"),
    ],
)
def test_what_code_returns(
    container: httpx.Client, tmp_path: Path, prediction: str, body: bytes
) -> None:
    """An answer that is neither text nor bytes becomes JSON, as in the toolkit's server."""
    text = ANSWERS.replace("PREDICTION", prediction)
    load(container, "a", coded(tmp_path / "a", 1, text)).raise_for_status()
    assert invoke(container, "a").content == body


def test_predictions_without_output_fn(container: httpx.Client, tmp_path: Path) -> None:
    """A prediction that is no array is JSON, as the toolkit's default writes it."""
    text = "def model_fn(d): ...\ndef predict_fn(x, m): return {'label': 'x', 'scores': x}"
    load(container, "a", coded(tmp_path / "a", 1, text)).raise_for_status()
    assert invoke(container, "a", "[1, 2]").json() == {"label": "x", "scores": [1, 2]}
    load(container, "b", coded(tmp_path / "b", 1, ECHO)).raise_for_status()
    assert invoke(container, "b", '{"c": [1]}').json() == {"c": [1]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def predict_fn(data, model): ...", "must have model_fn, and transform_fn or predict_fn"),
        (TRANSFORM + "def input_fn(body, kind): ...", "has transform_fn and input_fn"),
        ("import no_such_module", "does not read requirements.txt"),
        ("def model_fn(d): 1 / 0\ndef predict_fn(data, model): ...", "model_fn of"),
    ],
)
def test_code_that_does_not_load(
    container: httpx.Client, tmp_path: Path, text: str, told: str
) -> None:
    """A script without the toolkit's functions, or that fails, is 400 and says what to mend."""
    assert told in refused(load(container, "a", coded(tmp_path / "a", 1, text)), 400)


def test_code_that_runs_out_of_memory(container: httpx.Client, tmp_path: Path) -> None:
    """A load or run for which memory is short is 507, so that the platform unloads something."""
    text = "def model_fn(d): ...\ndef predict_fn(x, m): raise MemoryError"
    load(container, "a", coded(tmp_path / "a", 1, text))
    refused(invoke(container, "a"), 507)
    text = "def model_fn(d): raise MemoryError\ndef predict_fn(x, m): ..."
    refused(load(container, "b", coded(tmp_path / "b", 1, text)), 507)
    text = "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')"
    refused(load(container, "b", coded(tmp_path / "c", 1, text)), 507)


def test_code_without_leave(sample_models: Path, tmp_path: Path) -> None:
    """Code is not run unless the server was started to run it: not even looked at."""
    folder = coded(tmp_path / "a", 1, f"open({str(tmp_path / 'ran')!r}, 'w')")
    identity(folder / "model.onnx")
    with (
        Workbench(sample_models, device="cpu") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        assert "artifact_code='on'" in refused(load(client, "a", folder), 400)
        assert not (tmp_path / "ran").exists()


# ── GET /models ─────────────────────────────────────────────────────────────


def test_list(container: httpx.Client, artifact: Path) -> None:
    """The list has exactly name and url of each loaded model, and no token."""
    assert container.get("/models").json() == {"models": []}
    load(container, "b", artifact)
    load(container, "a", artifact)
    rows = [{"modelName": name, "modelUrl": str(artifact)} for name in "ab"]
    assert container.get("/models").json() == {"models": rows}
    assert container.get("/models/").json() == {"models": rows}
    assert container.get("/models?next_page_token=&limit=").json() == {"models": rows}


def test_pages(container: httpx.Client, artifact: Path) -> None:
    """Pages follow each other by an opaque token, and none is empty."""
    for name in "abcd":
        load(container, name, artifact)
    first = container.get("/models", params={"limit": 2}).json()
    assert [row["modelName"] for row in first["models"]] == ["a", "b"]
    token = first["nextPageToken"]
    second = container.get("/models", params={"limit": 2, "next_page_token": token}).json()
    assert [row["modelName"] for row in second["models"]] == ["c", "d"]
    assert list(second) == ["models"]


@pytest.mark.parametrize(
    "query",
    [
        "next_page_token=-3",
        "next_page_token=%FF",
        "limit=0",
        "limit=-1",
        "limit=101",
        "limit=x",
        "limit=" + "9" * 5000,
    ],
)
def test_queries_that_are_no_page(container: httpx.Client, query: str) -> None:
    """A token that the server never gave, and a limit that is none, are refused."""
    refused(container.get(f"/models?{query}"), 400)


# ── GET and DELETE /models/{name} ───────────────────────────────────────────


def test_get_and_unload(container: httpx.Client, server: Workbench, artifact: Path) -> None:
    """An unloaded model is told so with AWS' text, its memory is back, and it is not found."""
    for response in (container.get("/models/a"), container.delete("/models/a")):
        assert refused(response, 404) == "Model not found: a"
    before_nbytes = server._core.status.snapshot().held_nbytes
    load(container, "a", artifact)
    assert server._core.status.snapshot().held_nbytes > before_nbytes
    assert container.get("/models/a").json() == {"modelName": "a", "modelUrl": str(artifact)}
    response = container.delete("/models/a")
    assert (response.status_code, response.json()) == (200, {"status": 'Model "a" unregistered'})
    assert server._core.status.snapshot().held_nbytes == before_nbytes
    assert refused(invoke(container, "a"), 404) == "Model not found: a"
    assert load(container, "a", artifact).status_code == 200


def test_unload_while_busy(
    container: httpx.Client, server: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in progress have some time, then are ended; everybody gets an answer."""
    monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.1)
    endless = loop(made(tmp_path / "endless") / "model.onnx").parent
    before_nbytes = server._core.status.snapshot().held_nbytes
    load(container, "a", endless)
    body = json.dumps({"n": 2**62, "x": np.eye(8).tolist()})
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(invoke, container, "a", body) for _ in range(2)]
        until(lambda: server._core.status.of("sagemaker/a").leases == 2)
        assert container.get("/ping").status_code == 200
        assert listed(container) == ["a"]
        assert container.delete("/models/a").status_code == 200
        for run in runs:
            assert "unloaded" in refused(run.result(30), 503)
    assert server._core.status.snapshot().held_nbytes == before_nbytes
    refused(container.get("/models/a"), 404)
    assert load(container, "a", endless).status_code == 200


ENDLESS = """
import of_the_test
def model_fn(model_dir): ...
def predict_fn(data, model):
    if data[0] == 1:
        of_the_test.begun.set()
        of_the_test.go_on.wait(30)
    return data
"""


def test_a_load_beside_a_run_that_does_not_end(
    tmp_path: Path, events: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that nothing can end holds its memory, but neither the unload nor the name."""
    url = with_code(made(tmp_path / "a"), ENDLESS)
    with (url / "weights").open("wb") as file:
        file.truncate(6 * 2**20)
    given = {"device": "cpu", "evict": "never", "artifact_code": "on", "wait": "200ms"}
    workbench = Workbench(budget="10MiB", **given)
    workbench._core._clock = Clock()  # so that only the load waits too long, for room
    with workbench, httpx.Client(base_url=workbench.url) as client, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.1)
        load(client, "a", url).raise_for_status()
        run = pool.submit(invoke, client, "a", "[1]")
        assert events.begun.wait(30)
        assert client.delete("/models/a").status_code == 200
        refused(run.result(30), 503)
        told = refused(load(client, "a", url), 507)
        assert told.startswith("a waited 200 ms for room: a holds 7.2 MiB in a run that has lasted")
        workbench.budget = "20MiB"
        load(client, "a", url).raise_for_status()
        assert invoke(client, "a", "[2]").json() == [2]
        held_nbytes = workbench._core.status.snapshot().held_nbytes
        events.go_on.set()
        until(lambda: workbench._core.status.snapshot().held_nbytes < held_nbytes)
        assert invoke(client, "a", "[3]").json() == [3]
        assert listed(client) == ["a"]


# ── POST /models/{name}/invoke ──────────────────────────────────────────────

FAILING = "def model_fn(d): ...\ndef predict_fn(x, m): raise ValueError('on purpose')"


def test_the_header_names_no_model(container: httpx.Client, artifact: Path) -> None:
    """The path says which model runs; Target-Model and custom attributes change nothing."""
    load(container, "a", artifact)
    headers = {
        "x-amzn-sagemaker-target-model": "b.tar.gz",
        "x-amzn-sagemaker-custom-attributes": "x",
    }
    for body, encoding in ((b"[1, 2]", "identity"), (gzip.compress(b"[1, 2]"), "gzip")):
        answer = invoke(container, "a", body, **headers, **{"content-encoding": encoding})
        assert answer.json() == [1, 2]
        assert "x-amzn-sagemaker-custom-attributes" not in answer.headers


def test_v2_bodies(container: httpx.Client, artifact: Path) -> None:
    """A V2 request is answered as V2, by the platform's name of the model."""
    load(container, "a b", artifact)
    entry = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    told = invoke(container, "a b", json.dumps({"inputs": [entry]})).json()
    assert told["outputs"] == [{**entry, "name": "y"}]
    assert told["model_name"] == "a b"
    told = container.post("/endpoints/m/invocations", json={"inputs": [entry]}).json()
    assert told["model_name"] == "m"  # the server's own is called as there


def test_texts_have_the_platforms_name(
    container: httpx.Client,
    server: Workbench,
    artifact: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Errors, events and the log call a model as the platform does, without our prefix."""
    name, end = "a/b c", server._core.events.last
    load(container, name, artifact).raise_for_status()
    assert refused(invoke(container, name, "[[1, 2]]"), 400).startswith("input 'x' of a/b c takes")
    entry = {"name": "q", "shape": [1], "datatype": "FP32", "data": [1]}
    told = refused(invoke(container, name, json.dumps({"inputs": [entry]})), 400)
    assert told == "a/b c has no input 'q'; it takes 'x' FP32 [-1]"
    load(container, "code", with_code(made(tmp_path / "c"), FAILING)).raise_for_status()
    assert refused(invoke(container, "code"), 500) == "code raised ValueError: on purpose"
    empty = fill(tmp_path / "empty", {"1/x": "", "config.pbtxt": ""})
    assert refused(load(container, "e", empty), 400).startswith("e has no file ")
    steps = fill(tmp_path / "steps", {"e/config.pbtxt": ENSEMBLE, "e/1/x": "", "p/model.onnx": ""})
    assert refused(load(container, "s", steps), 400).startswith("s: its part 's/p': ")
    container.delete(f"/models/{quote(name, safe='')}")
    events = [str(entry.event) for entry in server._core.events.since(end)]
    assert any(event.startswith("a/b c, ") for event in events)
    assert "model code raised" in caplog.messages
    assert not any("sagemaker/" in text for text in (*events, *caplog.messages))


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, "[1, 2", 400),
        ({}, "[[1], [2]]", 200),
        ({"content-type": "application/x-pickle"}, "x", 415),
        ({"accept": "image/png"}, "[1]", 406),
        ({"content-encoding": "gzip"}, "[1]", 400),
        ({"content-encoding": "zip"}, "[1]", 415),
        ({}, "[" + "1," * 2**19 + "1]", 413),
    ],
)
def test_faults_of_clients(
    container: httpx.Client, artifact: Path, headers: dict[str, str], body: str, status: int
) -> None:
    """What the client did wrong is 4xx with the reason, and the model goes on."""
    load(container, "a", artifact)
    response = invoke(container, "a", body, **headers)
    if status == 200:
        assert response.status_code == 200
    else:
        refused(response, status)
    assert invoke(container, "a").json() == [1, 2]


def test_content_types_both_ways(container: httpx.Client, artifact: Path) -> None:
    """Accept says what comes back, with its weights; nothing said is JSON."""
    load(container, "a", artifact)
    answer = invoke(container, "a", "1\n2", accept="application/json;q=0.5, text/csv", **CSV)
    assert (answer.headers["content-type"], answer.text) == ("text/csv", "1.0\n2.0\n")
    assert invoke(container, "a", "1\n2", **CSV).json() == [1, 2]


@pytest.mark.parametrize("accept", [None, "", "*/*"])
def test_the_default_media_type(
    tmp_path: Path, artifact: Path, accept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable's media type is that of answers if a request accepts any, and of no others.

    An answer that cannot have it is JSON.
    """
    two = tmp_path / "two" / "model.onnx"
    written(two, "(float[n] x) => (float[n] y, float[n] z) { y = Neg(x) z = Identity(x) }")
    headers = {} if accept is None else {"accept": accept}
    monkeypatch.setenv("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "application/x-npy")
    with (
        Workbench(device="cpu") as server,
        httpx.Client(base_url=server.url, headers={"accept": ""}) as client,
    ):
        for name, folder in (("a", artifact), ("two", two.parent)):
            load(client, name, folder)
        for _ in range(2):  # the second one by the short cut
            answer = invoke(client, "a", **headers)
            assert answer.headers["content-type"] == "application/x-npy"
            assert np.load(io.BytesIO(answer.content)).tolist() == [1, 2]
        assert invoke(client, "a", accept="application/json").json() == [1, 2]
        answer = invoke(client, "two", **headers)
        assert answer.json() == {"y": [-1, -2], "z": [1, 2]}
        entry = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
        answer = invoke(client, "two", json.dumps({"inputs": [entry]}), **headers)
        assert [each["data"] for each in answer.json()["outputs"]] == [[-1, -2], [1, 2]]
        body = json.dumps({"inputs": [entry], "outputs": [{"name": "z"}]})
        answer = invoke(client, "two", body, **headers)
        assert np.load(io.BytesIO(answer.content)).tolist() == [1, 2]
        refused(invoke(client, "two", accept="application/x-npy"), 406)


# ── names ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name",
    [
        "m",
        "a b",
        "a/b",
        "..",
        "%2F",
        "a\nb",
        "模型",
        "models",
        "a/invoke",
        "x" * 3000,
    ],
)
def test_names(container: httpx.Client, server: Workbench, artifact: Path, name: str) -> None:
    """Any text is a name, which meets none of the repository's."""
    assert load(container, name, artifact).status_code == 200
    assert listed(container) == [name]
    path = "/models/" + quote(name, safe="").replace(".", "%2E")
    assert raw(server, "GET", path) == (200, {"modelName": name, "modelUrl": str(artifact)})
    assert raw(server, "POST", f"{path}/invoke", b"[1, 2]") == (200, [1, 2])
    assert raw(server, "DELETE", path)[0] == 200
    assert raw(server, "GET", path)[0] == 404
    assert server.names == ("m",)


def raw(server: Workbench, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """A request whose path no client has changed."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    connection.request(method, path, body)
    response = connection.getresponse()
    told = response.status, json.loads(response.read() or b"null")
    connection.close()
    return told


def test_a_name_that_cannot_be(container: httpx.Client, artifact: Path) -> None:
    """Half a surrogate pair, which no answer could carry, is no name."""
    body = json.dumps({"model_name": "\ud800", "url": str(artifact)})
    refused(container.post("/models", content=body), 400)


# ── other methods and paths ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/ping", "GET, HEAD"),
        ("PUT", "/models", "GET, POST, HEAD"),
        ("POST", "/models/a", "GET, DELETE, HEAD"),
        ("GET", "/models/a/invoke", "POST"),
        ("GET", "/invocations", "POST"),
    ],
)
def test_methods(container: httpx.Client, method: str, path: str, allow: str) -> None:
    """Another method is 405, as JSON, with those that there are."""
    response = container.request(method, path)
    refused(response, 405)
    assert response.headers["allow"] == allow


def test_paths(container: httpx.Client) -> None:
    """A path below /models that is none of the contract's is 404, as JSON."""
    refused(container.get("/models/a/b"), 404)
    refused(container.get("/models/%FF"), 404)


# ── 507, and who leaves ─────────────────────────────────────────────────────


def heavy(folder: Path, nbytes: int) -> Path:
    """A model that takes at least *nbytes*, by the size of its files."""
    with_code(folder, "def model_fn(d): ...\ndef predict_fn(x, m): return x")
    with (folder / "weights").open("wb") as file:
        file.truncate(nbytes)
    return folder


def test_memory_is_short(tmp_path: Path) -> None:
    """With evict="never" a load for which there is no room is 507, until the platform unloads."""
    urls = [heavy(made(tmp_path / str(n)), 6 * 2**20) for n in range(2)]
    with (
        Workbench(evict="never", budget="10MiB", device="cpu", artifact_code="on") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        assert load(client, "a", urls[0]).status_code == 200
        refused(load(client, "b", urls[1]), 507)
        assert listed(client) == ["a"]
        refused(load(client, "c", heavy(made(tmp_path / "c"), 20 * 2**20)), 507)
        assert client.delete("/models/a").status_code == 200
        assert load(client, "b", urls[1]).status_code == 200
        client.delete("/models/b")
        code = "def model_fn(d): raise MemoryError\ndef predict_fn(x, m): ..."
        refused(load(client, "a", with_code(made(tmp_path / "m"), code)), 507)
        code = code.replace("MemoryError", "ValueError('bad value in ZOOM')")
        refused(load(client, "a", with_code(tmp_path / "m", code)), 400)
        assert listed(client) == []


def test_an_evicted_model(tmp_path: Path) -> None:
    """It is in no list, a request or a load brings it back, and an unload forgets it."""
    from workbench.samples import write_models

    urls = [folder / "1" for folder in write_models(tmp_path, 2, 4 * 2**20)]
    with (
        Workbench(budget="14MiB", device="cpu", cache="off") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        for name, url in zip("ab", urls, strict=True):
            assert load(client, name, url).status_code == 200
        assert listed(client) == ["b"]
        refused(client.get("/models/a"), 404)
        inputs = workbench._core.status.signature("sagemaker/a").inputs
        (spec,) = inputs.values()
        body = json.dumps(np.zeros([max(dim, 1) for dim in spec.shape]).tolist())
        assert invoke(client, "a", body).status_code == 200
        assert listed(client) == ["a"]
        assert load(client, "b", urls[1]).status_code == 200
        assert listed(client) == ["b"]
        assert client.delete("/models/a").status_code == 200
        refused(invoke(client, "a", body), 404)


# ── POST /invocations ───────────────────────────────────────────────────────


def test_invocations_of_the_only_model(container: httpx.Client, artifact: Path) -> None:
    """Without a name the one model runs; where there are several, one is to be named."""
    assert container.post("/invocations", content="[1]").json() == [1]
    load(container, "a", artifact)
    assert container.post("/invocations", content="[2]").json() == [2]
    load(container, "b", artifact)
    told = refused(container.post("/invocations", content="[2]"), 400)
    assert told.startswith("Parameter model_name is required.")
    assert container.post("/invocations?model_name=b", content="[3]").json() == [3]
    refused(container.post("/invocations?model_name=c", content="[3]"), 404)


def test_first_requests_of_a_single_model(tmp_path: Path, events: SimpleNamespace) -> None:
    """Requests that come while the only model is being loaded wait for it, its code's too."""
    with_code(made(tmp_path / "artifacts") / "model", GATED)
    with (
        Workbench(artifacts=tmp_path / "artifacts", device="cpu", artifact_code="on") as workbench,
        httpx.Client(base_url=workbench.url, timeout=30) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        given = {"content": "[1]", "headers": {"content-type": "application/json"}}
        first = pool.submit(client.post, "/invocations", **given)
        assert events.begun.wait(30)
        later = pool.submit(client.post, "/invocations", **given)
        with pytest.raises(TimeoutError):
            later.result(0.2)
        assert client.get("/ping").status_code == 200
        events.go_on.set()
        assert first.result().text == later.result().text == "[1]"
        (name,) = listed(client)
        assert name.startswith("model-")


def test_invocations_load_on_demand(tmp_path: Path) -> None:
    """Target-Model names an artifact below a folder, which the first request loads, once."""
    for name in ("été", "b"):
        identity(made(tmp_path / "artifacts" / "v1" / name) / "model.onnx")
    (tmp_path / "model.onnx").touch()
    with (
        Workbench(artifacts=tmp_path / "artifacts", device="cpu") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):

        def ask(target: str) -> httpx.Response:
            headers = {"x-amzn-sagemaker-target-model": target.encode()}
            return client.post("/invocations", content="[1]", headers=headers)

        with ThreadPoolExecutor(4) as pool:
            for answer in pool.map(ask, ["v1/été"] * 4):
                assert answer.json() == [1]
        assert len(listed(client)) == 1
        assert ask("v1/b").json() == [1]
        assert "v1/c" in refused(ask("v1/c"), 404)
        for outside in ("../model.onnx", "..", "v1/../../x"):
            refused(ask(outside), 400)
        refused(ask(str(tmp_path)), 404)
        assert workbench.endpoint.statistics["v1/été"].loads == 1


# ── who may ask ─────────────────────────────────────────────────────────────


def test_tokens_and_groups(tmp_path: Path, artifact: Path) -> None:
    """The contract is behind the token, loading and code are of the groups that may be closed."""
    token = "0123456789abcdef"
    code = heavy(made(tmp_path / "code"), 1)
    with (
        Workbench(device="cpu", token=token, artifact_code="on") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        for response in (client.get("/ping"), client.get("/models"), load(client, "a", artifact)):
            refused(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        client.headers["authorization"] = f"Bearer {token}"
        assert load(client, "a", artifact).status_code == 200
        assert load(client, "c", code).status_code == 200
        workbench.restart(restrict={"model-repository": "off", "functions": "off"})
        refused(load(client, "b", artifact), 403)
        refused(client.delete("/models/a"), 403)
        assert invoke(client, "a").json() == [1, 2]
        refused(invoke(client, "c"), 403)


def test_a_restart(artifact: Path, tmp_path: Path) -> None:
    """After a restart models are as evicted ones are: a request brings them back."""
    with (
        Workbench(device="cpu", artifact_code="on") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        load(client, "a", artifact)
        load(client, "b", coded(tmp_path / "b", 2))
        workbench.restart(wait="30s")
        assert invoke(client, "a").json() == [1, 2]
        assert invoke(client, "b").json() == [4, 6]
        assert listed(client) == ["a", "b"]
        assert client.get("/models/a").json()["modelUrl"] == str(artifact)
        assert client.delete("/models/a").status_code == 200
