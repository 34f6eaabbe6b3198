"""Triton's model repository extension over HTTP, one test a rule, against live servers."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import onnx_models
import pytest
from inside import until
from messages import error_of
from tritonclient.http import InferenceServerClient, InferInput

from doubles import FakeFiles, FakeLoader
from workbench import Workbench
from workbench.core import ServerCore

INDEX = "/v2/repository/index"
WINE = "/v2/repository/models/wine"


@pytest.fixture
def explicit(sample_models: Path) -> Iterator[Workbench]:
    """A server where a model loads only when asked for."""
    with Workbench(sample_models, load="explicit", device="cpu") as workbench:
        yield workbench


@pytest.fixture
def http(explicit: Workbench) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=explicit.url) as client:
        yield client


@pytest.fixture
def triton(explicit: Workbench) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(explicit.url.removeprefix("http://")) as client:
        yield client


def states(rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in rows}


# ── index ───────────────────────────────────────────────────────────────────


def test_index_rows(http: httpx.Client) -> None:
    """Every model has a row, loaded or not: name, version as text, state, no empty reason."""
    rows = http.post(INDEX).json()
    assert rows[0] == {"name": "diabetes", "version": "1", "state": "UNAVAILABLE"}
    digits = ["digits", "digits_conv", "digits_label", "digits_pixels", "digits_reader"]
    assert list(states(rows)) == ["diabetes", *digits, "wine"]


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"ready": false}'])
def test_index_bodies(http: httpx.Client, body: bytes) -> None:
    """An empty body is an empty object."""
    assert len(http.post(INDEX, content=body).json()) == 7


def test_index_of_what_is_ready(http: httpx.Client, explicit: Workbench) -> None:
    """With "ready" the index has only what is loaded."""
    assert http.post(INDEX, json={"ready": True}).json() == []
    explicit.load("wine")
    wine = {"name": "wine", "version": "1", "state": "READY"}
    assert http.post(INDEX, json={"ready": True}).json() == [wine]


@pytest.mark.parametrize("ready", [1, "true", None, []])
def test_index_with_a_bad_ready(http: httpx.Client, ready: object) -> None:
    """A "ready" that is no boolean is a 400."""
    response = http.post(INDEX, json={"ready": ready})
    assert response.status_code == 400
    assert error_of(response).startswith("'ready' must be true or false, not ")


@pytest.mark.parametrize("body", [b"[]", b"{", b"7"])
def test_index_of_what_is_no_object(http: httpx.Client, body: bytes) -> None:
    """A body that is no JSON object is a 400."""
    response = http.post(INDEX, content=body)
    assert (response.status_code, list(response.json())) == (400, ["error"])


def test_index_of_a_named_repository(http: httpx.Client) -> None:
    """The name of a repository is ignored, as in Triton."""
    assert http.post("/v2/repository/any%2Fone/index").json() == http.post(INDEX).json()


def test_index_has_versions_and_reasons(sample_models: Path, tmp_path: Path) -> None:
    """Each served version has a row; what is broken or was unloaded tells why."""
    for version in ("2", "3"):
        shutil.copytree(sample_models / "wine" / "1", tmp_path / "wine" / version)
    (tmp_path / "wine" / "config.pbtxt").write_text("version_policy { all {} }")
    (tmp_path / "broken").mkdir()
    with Workbench(tmp_path, device="cpu") as workbench:
        workbench.load("wine", 3)
        workbench.unload("wine", 3)
        broken, two, three = httpx.post(workbench.url + INDEX).json()
    assert (two["version"], three["version"]) == ("2", "3")
    assert "reason" not in two
    assert three["reason"] == "unloaded"
    assert "version" not in broken
    assert broken["reason"].startswith("the folder of model 'broken' holds no model")


# ── load ────────────────────────────────────────────────────────────────────


def test_load(http: httpx.Client, explicit: Workbench) -> None:
    """A load answers 200 with an empty body once the model is ready; again it does no harm."""
    for _ in range(2):
        response = http.post(f"{WINE}/load")
        assert (response.status_code, response.content) == (200, b"")
        assert [model.id.name for model in explicit.snapshot().models] == ["wine"]


@pytest.mark.parametrize("body", [b"{}", b'{"parameters": {}}', b'{"parameters": null}'])
def test_load_bodies(http: httpx.Client, body: bytes) -> None:
    """The body may be an object without parameters, of any Content-Type."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert http.post(f"{WINE}/load", content=body, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("path", "known"),
    [(INDEX, "ready"), (f"{WINE}/load", "parameters"), (f"{WINE}/unload", "parameters")],
)
def test_unknown_members(http: httpx.Client, path: str, known: str) -> None:
    """A member that the extension does not have is refused by its name."""
    reply = http.post(path, json={known: None, "more": 1})
    assert reply.status_code == 400
    told = f"there is no member 'more' in this request; available: {known}"
    assert reply.json() == {"error": told}


@pytest.mark.parametrize("name", ["nobody", "a/b", "..%2Fwine", "%ff", "models/wine"])
def test_load_of_an_unknown_model(http: httpx.Client, name: str) -> None:
    """What is no model's name is a 404, slashes and all."""
    response = http.post(f"/v2/repository/models/{name}/load")
    assert (response.status_code, list(response.json())) == (404, ["error"])


def test_loading_names_with_slashes(http: httpx.Client) -> None:
    """A name may hold slashes, quoted or not, and is decoded once."""
    for quoted in ("a/b%20c/load", "a%2Fb%20c/load"):
        told = error_of(http.post(f"/v2/repository/models/{quoted}/load"))
        assert "there is no model 'a/b c/load'; available: " in told


@pytest.mark.parametrize(
    ("verb", "parameters", "message"),
    [
        ("load", {"foo": 1}, "there is no load parameter 'foo'; available: config and file:"),
        ("load", {"unload_dependents": True}, "there is no load parameter 'unload_dependents'"),
        ("load", [], "'parameters' is not a JSON object"),
        ("unload", {"foo": 1}, "there is no unload parameter 'foo'; available: unload_dependents"),
        ("unload", {"unload_dependents": 1}, "'unload_dependents' must be true or false, not 1"),
        ("unload", "x", "'parameters' is not a JSON object"),
    ],
)
def test_bad_parameters(
    http: httpx.Client, explicit: Workbench, verb: str, parameters: object, message: str
) -> None:
    """A parameter that is unknown, or of a wrong type, is a 400 that names it; nothing is done."""
    before = http.post(INDEX).json()
    response = http.post(f"{WINE}/{verb}", json={"parameters": parameters})
    assert response.status_code == 400
    assert error_of(response).startswith(message)
    assert http.post(INDEX).json() == before


# ── reload ──────────────────────────────────────────────────────────────────


class Scaled:
    """A model *m* that multiplies by a number, which lies there or is put there now."""

    def __init__(self, root: Path) -> None:
        self.path = root / "m" / "1" / "model.onnx"
        self.path.parent.mkdir(parents=True)

    def put(self, factor: float) -> None:
        onnx_models.scaled(self.path.with_suffix(".new"), factor).replace(self.path)


@pytest.fixture
def scaled(tmp_path: Path) -> Scaled:
    scaled = Scaled(tmp_path)
    scaled.put(1.0)
    return scaled


@pytest.fixture
def triton_of_m(scaled: Scaled, tmp_path: Path) -> Iterator[InferenceServerClient]:
    """A client of a server of that model, which is loaded."""
    with (
        Workbench(tmp_path, load="explicit", device="cpu") as workbench,
        InferenceServerClient(workbench.url.removeprefix("http://")) as client,
    ):
        client.load_model("m")
        yield client


def factor_of(client: InferenceServerClient) -> float:
    """What *m* multiplies by."""
    one = InferInput("x", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
    (answer,) = client.infer("m", [one]).as_numpy("y")
    return float(answer)


def test_a_changed_model_is_loaded_without_a_gap(
    scaled: Scaled, triton_of_m: InferenceServerClient
) -> None:
    """Whoever asks all the while is always answered, by the old files and then by the new ones."""
    done, answered = threading.Event(), threading.Semaphore(0)
    one = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    answers: list[float] = []

    def ask() -> None:
        with httpx.Client(base_url=f"http://{triton_of_m._parsed_url.netloc}") as client:
            while not done.is_set():
                answer = client.post("/v2/models/m/infer", json={"inputs": [one]})
                answers.append(answer.json()["outputs"][0]["data"][0])
                answered.release()

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for factor in range(2, 12):
            assert answered.acquire(timeout=30)
            scaled.put(float(factor))
            triton_of_m.load_model("m")
            assert factor_of(triton_of_m) == factor
        done.set()
        asking.result(30)
    assert answers == sorted(answers)
    assert len(answers) >= 10


# ── unload ──────────────────────────────────────────────────────────────────


def test_unload_is_synchronous(http: httpx.Client, explicit: Workbench) -> None:
    """An unload answers 200 with an empty body once the memory is back."""
    explicit.load("wine")
    response = http.post(f"{WINE}/unload")
    assert (response.status_code, response.content) == (200, b"")
    assert (explicit.snapshot().models, explicit.snapshot().held_nbytes) == ((), 0)


@pytest.mark.parametrize("name", ["wine", "nobody"])
def test_unload_of_what_is_not_loaded(http: httpx.Client, name: str) -> None:
    """A model that is not loaded, or unknown, is unloaded already, as in Triton."""
    assert http.post(f"/v2/repository/models/{name}/unload").status_code == 200


def test_unload_of_a_broken_model(tmp_path: Path) -> None:
    """A model whose configuration is broken is unloaded already too."""
    (tmp_path / "broken").mkdir()
    with Workbench(tmp_path, device="cpu") as workbench:
        response = httpx.post(f"{workbench.url}/v2/repository/models/broken/unload")
    assert response.status_code == 200


# ── paths ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_loading_from_a_named_repository(http: httpx.Client, verb: str) -> None:
    """A load or an unload in a named repository is a 501."""
    response = http.post(f"/v2/repository/R/models/wine/{verb}")
    assert response.status_code == 501
    assert error_of(response).startswith("no repository can be named")


@pytest.mark.parametrize("path", [INDEX, f"{WINE}/load", f"{WINE}/unload"])
def test_methods(http: httpx.Client, path: str) -> None:
    """All of it is POST; with a slash behind it too."""
    response = http.get(path)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert http.post(f"{path}/").status_code == 200


def test_loads_hold_up_no_reader(tmp_path: Path) -> None:
    """While models load and load, what only reads is answered."""
    names = ("a", "b", "c")
    gate = threading.Event()
    loader = FakeLoader(dict.fromkeys(names, 1), gates=dict.fromkeys(names, gate))
    for name in names:
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(b"")
    server = Workbench(tmp_path, device="cpu", budget="100B")
    server._serving.core = ServerCore(server.settings, files=FakeFiles(loader))
    with ThreadPoolExecutor(3) as threads, server:
        try:
            paths = [f"{server.url}/v2/repository/models/{name}/load" for name in names]
            loads = [threads.submit(httpx.post, path, timeout=60) for path in paths]
            until(
                lambda: set(states(httpx.post(server.url + INDEX).json()).values()) == {"LOADING"}
            )
            assert httpx.get(f"{server.url}/v2/models").json() == {"models": [*names]}
        finally:
            gate.set()
        assert [load.result().status_code for load in loads] == [200, 200, 200]


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_nothing_is_loaded_by_hand_where_the_repository_is_watched(
    sample_models: Path, verb: str
) -> None:
    """Loads and unloads are a 503 there, before their parameters are read."""
    with Workbench(sample_models, load="watch", device="cpu") as workbench:
        path = f"{workbench.url}/v2/repository/models/digits/{verb}"
        for given in ({}, {"parameters": {"nonsense": 1}}):
            answer = httpx.post(path, json=given)
            assert answer.status_code == 503
            assert "polling is enabled" in error_of(answer)


def test_a_reason_is_not_endless(tmp_path: Path) -> None:
    """A row of the index tells the beginning of a long reason."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(f'default_model_filename: "/{"x" * 10_000}"')
    with Workbench(tmp_path, load="explicit", device="cpu") as workbench:
        (row,) = httpx.post(f"{workbench.url}/v2/repository/index").json()
    assert row["reason"].startswith(f"{tmp_path}/m/config.pbtxt: default_model_filename '/xxx")
    assert len(row["reason"]) == 4000
