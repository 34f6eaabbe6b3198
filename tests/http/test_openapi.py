"""The OpenAPI document: that it tells what is served, no more and no less, and that it is true."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tritonclient.utils import shared_memory

from workbench import Workbench
from workbench.http import docs
from workbench.http.openapi import document as openapi
from workbench.http.openapi.examples import infer_example
from workbench.http.routes import GROUPS
from workbench.model import ModelMetadata, Signature, TensorSpec

VALIDATOR = Path(__file__).parents[2] / ".venv-clients" / "bin" / "openapi-spec-validator"

Json = dict[str, Any]


def metadata(*inputs: TensorSpec, name: str = "m") -> ModelMetadata:
    """A model of these *inputs*."""
    outputs = {"y": TensorSpec("y", "FP32", (-1,))}
    return ModelMetadata(name, (1,), Signature("p", {spec.name: spec for spec in inputs}, outputs))


X = TensorSpec("x", "FP32", (-1, 2))


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Every path, method and operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def followed(document: Json, node: Json) -> Json:
    """What *node* refers to, or is."""
    if "$ref" not in node:
        return node
    for key in node["$ref"].removeprefix("#/").split("/"):
        document = document[key]
    return document


def example_of(document: Json, operation: Json) -> Any:
    """The example of the operation's JSON body, if it has one."""
    content = operation.get("requestBody", {}).get("content", {})
    described = content.get("application/json", {})
    return described.get("example") or followed(document, described.get("schema", {})).get(
        "example"
    )


def filled(document: Json, path: str) -> str:
    """*path* with the examples of its parameters."""
    for node in document["paths"][path].get("parameters", []):
        told = followed(document, node)
        path = path.replace(f"{{{told['name']}}}", quote(str(told["example"]), safe=""))
    return path


# ── the document of the server ──────────────────────────────────────────────


def test_what_every_operation_has() -> None:
    """Every operation has a summary, a section, and a name of its own."""
    document = openapi.document(GROUPS, None)
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    tags = [tag["name"] for tag in document["tags"]]
    for path, method, operation in operations(document):
        assert operation["summary"], path
        assert operation["tags"][0] in tags, path
        assert "200" in operation["responses"], path
        takes = {"requestBody"} if method == "post" and "unregister" not in path else set()
        assert operation.keys() & {"requestBody"} == takes, path


def test_every_parameter_of_a_path_is_told() -> None:
    """Every name in braces is described, once."""
    document = openapi.document(GROUPS, None)
    for path, item in document["paths"].items():
        parameters = [followed(document, node) for node in item.get("parameters", [])]
        assert [parameter["name"] for parameter in parameters] == re.findall(r"{(\w+)}", path)
        assert all(parameter["in"] == "path" for parameter in parameters)


def test_the_document_is_openapi(tmp_path: Path) -> None:
    """A validator that is not ours finds nothing wrong."""
    if not VALIDATOR.exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    documents = {
        "no_model": openapi.document(GROUPS, None),
        "a_model": openapi.document(GROUPS, metadata(X)),
        "of_a_model": openapi.document_of_model(GROUPS, metadata(X, name="a/b {c}"), None),
        "of_a_version": openapi.document_of_model(GROUPS, metadata(X), 1),
    }
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document), "utf-8")
    done = subprocess.run(
        [VALIDATOR, *documents],
        cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=200, check=False,
    )  # fmt: skip
    expected = "".join(f"{name}: OK\n" for name in documents)
    assert (done.returncode, done.stdout) == (0, expected), done.stdout + done.stderr


def test_every_example_works(sample_models: Path) -> None:
    """Asked in the document's order, with its own examples, all answer 200 as they say.

    A region of a GPU's memory is the exception, whose handle cannot be made up, and so are the
    models that a platform has put into a folder.
    """
    region = shared_memory.create_shared_memory_region("", "/workbench_example", 64)
    options: dict[str, Any] = {"device": "cpu", "shared_memory": True}
    try:
        with (
            Workbench(sample_models, **options) as workbench,
            httpx.Client(base_url=workbench.url) as client,
        ):
            document = client.get("/schema").json()
            for path, method, operation in operations(document):
                at = filled(document, path)
                response = client.request(method, at, json=example_of(document, operation))
                if path.startswith(("/models", "/invocations", "/endpoints")):
                    assert str(response.status_code) in operation["responses"]
                    continue
                assert response.status_code == 200, (path, response.text)
                content = operation["responses"]["200"].get("content", {})
                media = response.headers.get("content-type", "").partition(";")[0]
                assert media in content or (media, content) == ("", {}), path
    finally:
        shared_memory.destroy_shared_memory_region(region)


def test_examples_are_of_a_model_in_memory(sample_models: Path) -> None:
    """The examples are of a model that is loaded, before one that is not."""
    with Workbench(sample_models, device="cpu", load="explicit") as workbench:
        for name in ("diabetes", "wine"):  # which is the first at all, and which is loaded
            document = httpx.get(f"{workbench.url}/schema/openapi.json").json()
            assert document["components"]["parameters"]["model_name"]["example"] == name
            workbench.load("wine")


@pytest.mark.parametrize("models", ["broken", "none", "gone"])
def test_no_example_can_be_made(tmp_path: Path, models: str) -> None:
    """A server whose models are broken, or which has none, has the document all the same."""
    folder = tmp_path / "models"
    (folder / "broken" / "1").mkdir(parents=True)
    with Workbench(None if models == "none" else folder, device="cpu") as workbench:
        if models == "gone":
            folder.rename(tmp_path / "others")
        response = httpx.get(f"{workbench.url}/schema/openapi.json")
        assert response.json() == openapi.document(GROUPS, None)


# ── documents of models ─────────────────────────────────────────────────────

NAMES = ("digits", "digits_conv", "diabetes", "wine", "two", "scalar", "echo_bytes", "echo_bool")


@pytest.mark.parametrize("version", ["", "/versions/1"])
@pytest.mark.parametrize("name", NAMES)
def test_examples_of_a_model(client: httpx.Client, name: str, version: str) -> None:
    """The examples of a model's own document are answered by that model."""
    document = client.get(f"/v2/models/{name}{version}/docs/dataplane.json").json()
    ran = set()
    for path, method, operation in operations(document):
        if method == "post":
            response = client.post(filled(document, path), json=example_of(document, operation))
            assert response.status_code == 200
            ran.add(path.rpartition("/")[2])
        assert ("{model_version}" in path) == bool(version)
    assert ran == {"infer", "generate", "generate_stream"}
    told = document["components"]["parameters"]["model_name"]
    assert told["schema"]["enum"] == [told["example"]] == [name]


def test_document_of_a_version() -> None:
    """The example of a version's document is that version, of a model whose name may be odd."""
    document = openapi.document_of_model(GROUPS, metadata(X, name="a/b {c}"), 3)
    assert document["info"]["title"] == "a/b {c}, version 3"
    path = "/v2/models/{model_name}/versions/{model_version}/infer"
    assert filled(document, path) == "/v2/models/a%2Fb%20%7Bc%7D/versions/3/infer"


@pytest.mark.parametrize(
    ("spec", "example"),
    [
        (TensorSpec("x", "FP32", (-1, 2)), {"shape": [1, 2], "data": [0.0, 0.0]}),
        (TensorSpec("x", "INT64", (3,)), {"shape": [3], "data": [0, 0, 0]}),
        (TensorSpec("x", "BOOL", ()), {"shape": [], "data": [False]}),
        (TensorSpec("x", "BYTES", (-1,)), {"shape": [1], "data": ["text"]}),
        (TensorSpec("x", "UINT8", (0, 4)), {"shape": [0, 4], "data": []}),
        (TensorSpec("x", "FP32", (1, 3, 224, 224)), None),
        (TensorSpec("x", "BF16", (1,)), None),
    ],
)
def test_examples(spec: TensorSpec, example: Json | None) -> None:
    """An example has one element of each free size; what is too long, or no JSON, has none."""
    document = openapi.document(GROUPS, metadata(spec))
    for name in ("infer", "generate"):
        operation = document["paths"][f"/v2/models/{{model_name}}/{name}"]["post"]
        found = example_of(document, operation)
        if example is None:
            assert found is None
        elif name == "infer":
            assert found == {"inputs": [{"name": "x", "datatype": spec.datatype, **example}]}
        else:
            data = example["data"]
            assert found == {"x": data[0] if len(data) == 1 else data}


def test_optional_inputs_are_left_out() -> None:
    """An input that a model can do without is not in the example."""
    example = infer_example(metadata(X, TensorSpec("more", "FP32", (1,), optional=True)).signature)
    assert [entry["name"] for entry in example["inputs"]] == ["x"]


@pytest.mark.parametrize("after", ["/docs", "/docs/dataplane.json"])
@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("nobody", "there is no model 'nobody'"),
        ("digits/versions/9", "model 'digits' has no version 9"),
    ],
)
def test_documents_of_models_that_are_not_there(
    client: httpx.Client, model: str, told: str, after: str
) -> None:
    """Neither page nor document is there for a model that is not."""
    response = client.get(f"/v2/models/{model}{after}")
    assert response.status_code == 404
    assert told in response.json()["error"]


# ── the page ────────────────────────────────────────────────────────────────

PAGES = (
    "/schema/swagger",
    "/v2/docs",
    "/v2/models/digits/docs",
    "/v2/models/digits/versions/1/docs",
)


@pytest.mark.parametrize("path", PAGES)
def test_pages(client: httpx.Client, path: str) -> None:
    """Each page is HTML, which lets a browser load nothing from elsewhere."""
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http:" not in response.text
    assert "https:" not in response.text


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"),
    ],
)
def test_page_or_document(client: httpx.Client, accept: str, media: str) -> None:
    """/schema is the page for browsers and the document for others."""
    response = client.get("/schema", headers={"accept": accept})
    assert (response.status_code, response.headers["content-type"]) == (200, media)
    assert response.headers["vary"] == "accept"


@pytest.mark.parametrize("path", ["/schema/openapi.json", "/v2/docs/dataplane.json"])
def test_documents(client: httpx.Client, path: str) -> None:
    """The document is JSON at its own addresses, whatever a client takes."""
    response = client.get(path, headers={"accept": "text/html"})
    assert response.headers["content-type"] == "application/json"
    assert response.json() == client.get("/schema").json()


@pytest.mark.parametrize("name", docs.ASSETS)
def test_assets(client: httpx.Client, name: str) -> None:
    """The page's files are there, with their types, and may be kept for a day."""
    response = client.get(f"/schema/assets/{name}")
    assert response.status_code == 200
    assert response.headers["content-type"] == docs.ASSETS[name][1]
    assert response.headers["cache-control"] == "max-age=86400"
    assert len(response.content) > 500


def test_nothing_is_read_before_it_is_asked_for() -> None:
    """A server starts, and answers, without any of it."""
    code = """
        import sys, urllib.request
        from workbench import Workbench
        def here():
            return [name in sys.modules for name in ("workbench.http.openapi", "swagger_ui_bundle")]
        with Workbench(device="cpu") as workbench:
            urllib.request.urlopen(workbench.url + "/v2").read()
            before = here()
            for path in ("/schema", "/schema/assets/swagger-ui.css"):
                urllib.request.urlopen(workbench.url + path).read()
            print(before, here())
    """
    lines = [line.removeprefix("        ") for line in code.splitlines()]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True, encoding="utf-8", timeout=200, check=True,
    )  # fmt: skip
    assert done.stdout == "[False, False] [True, True]\n"
