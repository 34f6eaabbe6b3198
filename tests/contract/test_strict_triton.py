"""The statuses of a strict Triton (2.51, measured): its JSON library's are 500, its own are 400."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from onnx_models import identity

from workbench import Workbench

INPUT = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}


def of(**changes: object) -> object:
    """A request whose only input differs so from a good one; ``None`` leaves a member out."""
    entry = {key: value for key, value in {**INPUT, **changes}.items() if value is not None}
    return {"inputs": [entry]}


ROWS = [
    ("malformed", "{", 500),
    ("an empty body", "", 400),
    ("no object", [], 500),
    ("nothing", {}, 500),
    ("inputs is no list", {"inputs": 1}, 500),
    ("an input is no object", {"inputs": [1]}, 500),
    ("no name", of(name=None), 500),
    ("no datatype", of(datatype=None), 500),
    ("no shape", of(shape=None), 500),
    ("a negative size", of(shape=[-1, 64]), 500),
    ("too few elements", of(data=[0.5] * 63), 500),
    ("too many elements", of(data=[0.5] * 65), 500),
    ("text for a number", of(data=["a"] * 64), 500),
    ("null for a number", of(datatype="INT32", data=[None] * 64), 500),
    ("an unknown datatype", of(datatype="FP31"), 400),
    ("another datatype", of(datatype="INT32", data=[1] * 64), 400),
    ("another shape", of(shape=[1, 63], data=[0.5] * 63), 400),
    ("another name", of(name="x"), 400),
    ("an input twice", {"inputs": [INPUT, INPUT]}, 400),
    ("an unknown output", {"inputs": [INPUT], "outputs": [{"name": "x"}]}, 400),
    ("what is right", {"inputs": [INPUT]}, 200),
]


@pytest.fixture(scope="module")
def servers(sample_models: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a strict server, and of one that is not."""
    with (
        Workbench(sample_models, strict_triton="on", max_request="1MiB") as strict,
        Workbench(sample_models, max_request="1MiB") as usual,
    ):
        yield strict.url, usual.url


def test_statuses_of_requests_for_no_model(servers: tuple[str, str]) -> None:
    """Malformed JSON is a 500 there too, if the server is strict."""
    told = [httpx.post(f"{url}/v2/repository/index", content="{").status_code for url in servers]
    assert told == [500, 400]


@pytest.mark.parametrize(("body", "status"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_statuses(servers: tuple[str, str], body: object, status: int) -> None:
    """With the setting the status is Triton's; without it, no mistake of a client is a 500."""
    for url, wanted in zip(servers, (status, 400 if status == 500 else status), strict=True):
        path = f"{url}/v2/models/digits/infer"
        if isinstance(body, str):
            reply = httpx.post(path, content=body)
        else:
            reply = httpx.post(path, json=body)
        assert reply.status_code == wanted
        assert wanted == 200 or set(reply.json()) == {"error"}


def test_a_large_body_is_400_in_triton(servers: tuple[str, str]) -> None:
    """A body over the limit is 413, and as Triton's 400 where the setting asks for that."""
    content = b" " * (2**20 + 1)
    replies = [httpx.post(f"{url}/v2/models/digits/infer", content=content) for url in servers]
    assert [reply.status_code for reply in replies] == [400, 413]


DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"
INFER, LOAD = "/v2/models/{}/infer", "/v2/repository/models/{}/load"


def loading(**parameters: object) -> object:
    return {"parameters": parameters}


def taking(datatype: str, data: list[object]) -> object:
    entry = {"name": "x", "shape": [1], "datatype": datatype, "data": data}
    return {"inputs": [entry]}


OTHERS: dict[str, tuple[str, object]] = {
    "null for a float": (INFER.format("fp32"), taking("FP32", [None])),
    "true as 1": (INFER.format("bool"), taking("BOOL", [1])),
    "index: ready is a number": ("/v2/repository/index", {"ready": 1}),
    "load: no such model": (LOAD.format("nobody"), {}),
    "load: unknown parameter": (LOAD.format("fp32"), loading(foo=1)),
    "load: config is a number": (LOAD.format("fp32"), loading(config=1)),
    "load: config is no JSON": (LOAD.format("fp32"), loading(config="{")),
    "load: config with an unknown field": (LOAD.format("fp32"), loading(config='{"no": 1}')),
    "load: file without config": (
        LOAD.format("fp32"), {"parameters": {"file:1/model.onnx": "AA=="}},
    ),
    "load: file outside the folder": (
        LOAD.format("fp32"), {"parameters": {"config": "{}", "file:../model.onnx": "AA=="}},
    ),
    "load: config.pbtxt does not parse": (LOAD.format("broken"), {}),
    "load: config.pbtxt with another name": (LOAD.format("misnamed"), {}),
    "shared memory: no such object": (
        "/v2/systemsharedmemory/region/r/register", {"key": "/no", "offset": 0, "byte_size": 1},
    ),
    "FP16 as numbers": (INFER.format("fp16"), taking("FP16", [1.5])),
    "BF16 as numbers": (INFER.format("bf16"), taking("BF16", [1.5])),
    "BF16 as a text": (INFER.format("bf16"), taking("BF16", ["a"])),
    "300 for INT8": (INFER.format("int8"), taking("INT8", [300])),
}  # fmt: skip


def test_the_documentation_lists_the_statuses_that_differ(tmp_path: Path) -> None:
    """What strict_triton leaves different is in the tables of the documentation, and no more."""
    for name, config in (("broken", "no: 1"), ("misnamed", 'name: "other"')):
        identity(tmp_path / name / "1" / "model.onnx")
        (tmp_path / name / "config.pbtxt").write_text(config)
    for datatype in ("FP32", "FP16", "BF16", "BOOL", "INT8"):
        identity(tmp_path / f"{datatype.lower()}.onnx", datatype)
    section = DIFFERENCES.read_text("utf-8").partition("## Statuses with `strict_triton`")[2]
    told = dict(re.findall(r"^\| (.+) \| ([0-9]{3}) \|$", section, re.MULTILINE))
    with Workbench(
        tmp_path, device="cpu", strict_triton="on", shared_memory="on", token="off"
    ) as workbench:
        found = {
            name: str(httpx.post(workbench.url + path, json=body).status_code)
            for name, (path, body) in OTHERS.items()
        }
    assert found == told


def test_an_unknown_coding_is_501_in_triton(servers: tuple[str, str]) -> None:
    """A body in an unknown coding is 415, and as Triton's 501 where the setting asks for that."""
    coded = {"content": b"x", "headers": {"Content-Encoding": "br"}}
    replies = [httpx.post(f"{url}/v2/models/digits/infer", **coded) for url in servers]
    assert [reply.status_code for reply in replies] == [501, 415]
    assert {reply.headers["accept-encoding"] for reply in replies} == {"gzip, deflate"}
