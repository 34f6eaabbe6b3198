"""The words that Triton's own clients and suites compare come first, over HTTP and gRPC alike.

simple_http_infer_client, simple_grpc_health_metadata, simple_http_model_control,
grpc_explicit_int8_content_client and others of its examples; L0_infer, L0_lifecycle, L0_http
(http_test.py and generate_endpoint_test.py).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx_models import identity
from tritonclient.utils import InferenceServerException

from workbench import Workbench

UNKNOWN = "Request for unknown model:"
POLL = "failed to poll from model repository:"


def model(root: Path, name: str, config: str = "", *, broken: bool = False) -> None:
    (root / name / "1").mkdir(parents=True)
    if broken:
        (root / name / "1" / "model.onnx").write_bytes(b"no model")
    else:
        identity(root / name / "1" / "model.onnx")
    if config:
        (root / name / "config.pbtxt").write_text(config)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[Workbench]:
    model(tmp_path, "there")
    model(tmp_path, "broken", broken=True)
    model(tmp_path, "misconfigured", "max_batch_size: -1")
    with Workbench(
        tmp_path, load="explicit", device="cpu", grpc_port=0, max_request="1MiB"
    ) as workbench:
        yield workbench


@pytest.fixture(params=["http", "grpc"])
def client(url: Workbench, request: pytest.FixtureRequest) -> Iterator[Any]:
    module = getattr(tritonclient, request.param)
    address = url.grpc_url if request.param == "grpc" else url.url.removeprefix("http://")
    with module.InferenceServerClient(address) as client:
        yield client


def infer(client: Any, name: str, version: str = "") -> object:
    module = tritonclient.http if "http" in type(client).__module__ else tritonclient.grpc
    given = module.InferInput("x", [1], "FP32")
    given.set_data_from_numpy(np.ones(1, np.float32))
    return client.infer(name, [given], model_version=version)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: infer(c, "no"), f"{UNKNOWN} 'no' is not found: there is no model 'no'"),
        (lambda c: infer(c, "there"), f"{UNKNOWN} 'there' has no available versions: "),
        (lambda c: infer(c, "there", "1"), f"{UNKNOWN} 'there' version 1 is not at ready state: "),
        (lambda c: infer(c, "there", "9"), f"{UNKNOWN} 'there' version 9 is not found: "),
        (lambda c: c.get_model_metadata("no"), f"{UNKNOWN} 'no' is not found: "),
        (lambda c: c.get_model_metadata("there", "9"),
         f"{UNKNOWN} 'there' version 9 is not found: "),
        (lambda c: c.get_model_config("broken", "1"),
         f"{UNKNOWN} 'broken' version 1 is not at ready state: "),
        (lambda c: c.get_model_config("no"), f"{UNKNOWN} 'no' is not found: "),
        (lambda c: c.get_model_metadata("broken"), f"{UNKNOWN} 'broken' is not found: "),
        (lambda c: c.get_model_config("misconfigured"),
         f"{UNKNOWN} 'misconfigured' is not found: "),
        (lambda c: c.get_inference_statistics("no"),
         "requested model 'no' is not available: there is no model 'no'; available: "),
        (lambda c: c.get_inference_statistics("there"),
         "requested model 'there' is not available: it has statistics only while it is loaded"),
        (lambda c: c.get_inference_statistics("misconfigured"),
         "requested model 'misconfigured' is not available: "),
        (lambda c: c.load_model("no"),
         f"failed to load 'no', {POLL} there is no model 'no'; available: "),
        (lambda c: c.load_model(" \t"), "Model name cannot be empty. Please enter a valid name"),
        (lambda c: c.load_model("misconfigured"), f"failed to load 'misconfigured', {POLL} "),
        (lambda c: c.load_model("broken"), "load failed for model 'broken': "),
        (lambda c: c.load_model("there", config="{ nonsense"),
         f"failed to load 'there', {POLL} load parameter 'config': "),
    ],
)  # fmt: skip
def test_words(client: Any, ask: Callable[[Any], object], words: str) -> None:
    """An error begins as Triton's does, and then says in one line what is wrong."""
    with pytest.raises(InferenceServerException) as caught:
        ask(client)
    told = caught.value.message()
    assert told.startswith(words)
    assert "\n" not in told


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: infer(c, "there", "wrong"),
        lambda c: c.get_model_metadata("there", "wrong"),
        lambda c: c.get_model_config("there", "wrong"),
        lambda c: c.is_model_ready("there", "wrong"),
        lambda c: c.get_inference_statistics("there", "wrong"),
    ],
)
def test_words_of_a_version(url: Workbench, ask: Callable[[Any], object]) -> None:
    """Over gRPC a text that is no version is told in the words that Triton's example compares."""
    with (
        tritonclient.grpc.InferenceServerClient(url.grpc_url) as client,
        pytest.raises(InferenceServerException) as caught,
    ):
        ask(client)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert caught.value.message() == (
        "failed to get model version from specified version string 'wrong': "
        "a version is a whole number from 1"
    )


X = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}


WRONG = {
    "duplicate_input_names": (
        "infer", {"inputs": [X, X]}, "input 'x' already exists in request"),
    "test_duplicate_output_names": (
        "infer", {"inputs": [X], "outputs": [{"name": "y"}] * 2},
        "output 'y' already exists in request"),
    "test_negative_dimensions": (
        "infer", {"inputs": [{**X, "shape": [-1]}]},
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-"),
    "test_buffer_size_overflow": (
        "infer", {"inputs": [{**X, "shape": [2**32, 2**32]}]},
        f"invalid shape for input 'x': a shape of {2**64} elements causes total element count"),
    "test_buffer_size_overflow-bytes": (
        "infer", {"inputs": [{**X, "shape": [2**2, 2**60 + 2]}]},
        f"byte size overflow for input 'x': element count ({2**62 + 8}) * data type size (4)"),
    "test_parameters": (
        "generate", {"parameters": 1}, "Expected JSON object for keyword: 'parameters'"),
    "test_complex_schema": ("generate", {"p": {"q": 1}}, "parameter 'p' has invalid type"),
    "test_parameters-nested": (
        "generate", {"parameters": {"p": {"q": 1}}},
        "Converting keyword: 'parameters': parameter 'p' has invalid type."),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "body", "words"), WRONG.values(), ids=WRONG)
def test_words_of_l0_http(url: Workbench, verb: str, body: dict[str, Any], words: str) -> None:
    """What is wrong with a request is told in the words that L0_http compares, as a 400."""
    httpx.post(f"{url.url}/v2/repository/models/there/load").raise_for_status()
    answer = httpx.post(f"{url.url}/v2/models/there/{verb}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(words)


@pytest.fixture(scope="module")
def mock_llm() -> Iterator[str]:
    """The address of a model with the inputs of L0_http's mock_llm, of which one is optional."""
    workbench = Workbench(device="cpu")

    @workbench.model(
        inputs={
            "PROMPT": ("BYTES", [1, 1]),
            "STREAM": ("BOOL", [1, 1]),
            "input_ids": ("INT32", [1, -1]),
        },
        outputs={"TEXT": ("BYTES", [1, -1])},
    )
    def mock_llm(PROMPT: Any, STREAM: Any, input_ids: Any = None) -> Any:  # noqa: N803
        return PROMPT

    with workbench:
        yield f"{workbench.url}/v2/models/mock_llm"


BETWEEN = "expected number of inputs between 2 and 3 but got"
NO_TEXT = "attempt to access JSON non-string as string"
NO_FLAG = "attempt to access JSON non-boolean as boolean"
PROMPT_TWICE = "input 'PROMPT' already exists in request"
STREAM_TWICE = "input 'STREAM' already exists in request"


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{}", f"{BETWEEN} 0"),
        ('{"abc": 123}', f"{BETWEEN} 0"),
        ('{"PROMPT": "hello"}', f"{BETWEEN} 1"),
        ('{"STREAM": false, "other": "param"}', f"{BETWEEN} 1"),
        ('{"PROMPT": 123, "STREAM": false}', NO_TEXT),
        ('{"PROMPT": {"USER": "hello"}, "STREAM": true}', NO_TEXT),
        ('{"PROMPT": "hello", "STREAM": "false"}', NO_FLAG),
        ('{"PROMPT": true, "STREAM": 123}', NO_TEXT),
        ('{"STREAM": 123, "PROMPT": true}', NO_FLAG),
        ('{"PROMPT": "a", "STREAM": false, "PROMPT": "b"}', PROMPT_TWICE),
        ('{"PROMPT": "a", "STREAM": false, "PROMPT": "b", "STREAM": true}', PROMPT_TWICE),
        ('{"PROMPT": "a", "STREAM": false, "STREAM": true, "PROMPT": "b"}', STREAM_TWICE),
    ],
)
def test_words_of_the_generate_endpoint(mock_llm: str, verb: str, body: str, words: str) -> None:
    """generate_endpoint_test.py: inputs that are missing, of a wrong type, or there twice."""
    answer = httpx.post(f"{mock_llm}/{verb}", content=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([], "Got input(s) [], but missing required input(s) ['PROMPT','STREAM']."),
        (
            [{"name": "PROMPT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}],
            "Got input(s) ['PROMPT'], but missing required input(s) ['STREAM'].",
        ),
    ],
)
def test_words_of_l0_input_validation(mock_llm: str, inputs: list[Any], words: str) -> None:
    """input_validation_test.py: an inference says how many inputs it got, and which it misses."""
    told = httpx.post(f"{mock_llm}/infer", json={"inputs": inputs}).json()["error"]
    lead = f"{BETWEEN} {len(inputs)} inputs for model 'mock_llm'. "
    assert told.startswith(f"{lead}{words} Please provide all required input(s).")
