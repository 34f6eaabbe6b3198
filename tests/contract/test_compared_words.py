"""The words of Triton that clients' code compares, over HTTP and gRPC alike."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx_models import identity
from tritonclient.utils import InferenceServerException

from workbench import Workbench

_PAGE = (Path(__file__).parents[2] / "docs" / "differences.md").read_text("utf-8")
_SECTION = _PAGE.partition("## Words of errors")[2].partition("\n## ")[0]
WORDS = re.findall(r"^\| `(.+?)` \|", _SECTION, re.MULTILINE)
UNKNOWN, FAILED, SEVERAL, WATCHED, REGION = WORDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, config in (("there", ""), ("misconfigured", "max_batch_size: -1")):
        identity(root / name / "1" / "model.onnx")
        (root / name / "config.pbtxt").write_text(config)
    (root / "broken.onnx").write_bytes(b"no model")
    return root


@pytest.fixture(scope="module", params=["on-demand", "watch"])
def server(folder: Path, request: pytest.FixtureRequest) -> Iterator[Workbench]:
    settings: dict[str, Any] = {"load": request.param, "device": "cpu", "shared_memory": "on"}
    with Workbench(folder, grpc_port=0, **settings) as workbench:

        @workbench.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def several(x: Any) -> Any:
            yield x

        yield workbench


@pytest.fixture(params=["http", "grpc"])
def client(server: Workbench, request: pytest.FixtureRequest) -> Iterator[Any]:
    module = getattr(tritonclient, request.param)
    address = server.grpc_url if request.param == "grpc" else server.url.removeprefix("http://")
    with module.InferenceServerClient(address) as client:
        client.module, client.is_watched = module, server._core.settings.load == "watch"
        yield client


def infer(client: Any, name: str, version: str = "", *, region: str = "") -> object:
    given = client.module.InferInput("x", [1], "FP32")
    given.set_data_from_numpy(np.ones(1, np.float32))
    if region:
        given.set_shared_memory(region, 4)
    return client.infer(name, [given], model_version=version)


def load(client: Any, name: str, **more: str) -> object:
    return client.load_model(name, **more)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: infer(c, "no"), UNKNOWN),
        (lambda c: infer(c, "there", "9"), UNKNOWN),
        (lambda c: c.get_model_metadata("no"), UNKNOWN),
        (lambda c: c.get_model_config("no"), UNKNOWN),
        (lambda c: c.get_model_metadata("there", "9"), UNKNOWN),
        (lambda c: load(c, "no"), FAILED),
        (lambda c: load(c, "misconfigured"), FAILED),
        (lambda c: load(c, "broken"), FAILED),
        (lambda c: load(c, "there", config="{ nonsense"), FAILED),
        (lambda c: c.unload_model("there"), WATCHED),
        (lambda c: infer(c, "several"), SEVERAL),
        (lambda c: infer(c, "there", region="nobody's"), REGION),
    ],
)  # fmt: skip
def test_words(client: Any, ask: Callable[[Any], object], words: str) -> None:
    """An error that clients know by its words has them; an unknown model's begins with them."""
    if words == WATCHED and not client.is_watched:
        ask(client)
        return
    with pytest.raises(InferenceServerException) as caught:
        ask(client)
    told = caught.value.message()
    assert (WATCHED if words == FAILED and client.is_watched else words) in told
    assert words != UNKNOWN or told.startswith(words)
    assert "\n" not in told
