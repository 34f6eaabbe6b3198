"""``workbench.connect``: a server of another process, as a Python object."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from inside import until
from onnx_models import ENDLESS, loop

import workbench
from workbench import Float32
from workbench.annexes.connect.connection import Connection
from workbench.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    ServerNotRunning,
    TokenRequired,
    UsageError,
)
from workbench.model import ModelState


def answered_by(answer: Callable[[httpx.Request], httpx.Response]) -> Connection:
    """A connection to a server that *answer* stands for."""
    return Connection("http://elsewhere", "", 1.0, httpx.MockTransport(answer))


@pytest.fixture(scope="module")
def elsewhere(sample_models: Path) -> Iterator[str]:
    """The url of a server in another process, which asks for a token."""
    command = [sys.executable, "-m", "workbench", "serve", str(sample_models), "--port", "0"]
    with subprocess.Popen(
        [*command, "--token", "the-token-of-this-test", "--device", "cpu"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1].rstrip(":")
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def wb(elsewhere: str) -> Iterator[Connection]:
    with workbench.connect(elsewhere) as connection:
        yield connection


def test_the_same_answers(wb: Connection, sample_models: Path, held_out: dict[str, Any]) -> None:
    """Arrays of any number type, lists and keywords are answered as in the server's process."""
    rows = held_out["wine_x"][:4]
    with workbench.Workbench(sample_models, device="cpu") as here:
        expected = here.infer("wine", rows)
    assert np.array_equal(wb.infer("wine", rows), expected)
    assert np.array_equal(wb.infer("wine", features=rows.astype(np.float64).tolist()), expected)
    assert np.array_equal(asyncio.run(wb.ainfer("wine", rows, version=1)), expected)


def test_an_input_that_may_be_left_out() -> None:
    """The value is for the input that is needed, as in the server's process."""
    with workbench.Workbench(device="cpu", token="off") as here:

        @here.model(inputs={"x": Float32[-1], "bias": Float32[-1]}, outputs={"y": Float32[-1]})
        def moved(x: Any, bias: Any = 1) -> Any:
            return x + bias

        with workbench.connect(here.url) as wb:
            assert wb.infer("moved", [1, 2]).tolist() == [2, 3]
            assert wb.infer("moved", x=[1, 2], bias=[2, 2]).tolist() == [3, 4]


def test_what_only_the_server_itself_can(wb: Connection) -> None:
    """To pin, to serve or to set the budget is refused with where that can be done."""
    for name in ("pin", "register", "serve", "budget"):
        with pytest.raises(AttributeError, match=f"no '{name}' .* in the process of the server"):
            getattr(wb, name)
    with pytest.raises(AttributeError, match="no 'budget' to use or set"):
        wb.budget = "1GiB"
    assert not hasattr(wb, "_repr_html_")
    with pytest.raises(UsageError, match=r"the card of .* wb\.signature\('wine'\) what it takes$"):
        wb["wine"]
    with pytest.raises(UsageError, match=r"ask for http.*/v2/models/wine/generate_stream$"):
        next(wb.stream("wine", [1.0]))


def test_models_come_and_go(wb: Connection) -> None:
    """Loads and unloads are the server's, and the list says so."""
    wb.load("wine")
    wb.infer("wine", np.zeros((1, 13)))
    wine = {model.id.name: model for model in wb.models}["wine"]
    assert wine.state is ModelState.READY
    assert wine.nbytes > 0
    assert wine.requests.succeeded >= 1
    assert wine.inputs["features"].shape == (-1, 13)
    assert set(wb.models.df().name) == set(wb.names)
    wb.unload("wine")
    wine = {model.id.name: model for model in wb.models}["wine"]
    assert wine.state is ModelState.UNAVAILABLE


def test_the_events_of_a_server(wb: Connection) -> None:
    """They have the numbers, times, kinds and texts that the server has."""
    wb.load("digits")
    entries = wb.events
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    last = entries[-1]
    assert (last.event.kind, str(last.event).split(",")[0]) == ("load", "digits:1")
    assert wb.events_after(last.number - 1) == (last,)
    assert "digits:1" in repr(entries)
    assert "digits:1" in entries._repr_html_()


@pytest.mark.usefixtures("no_grace")
def test_a_cancelled_task_ends_the_run(tmp_path: Path) -> None:
    """The server sees that the connection is closed, and stops the model."""
    loop(tmp_path / "endless.onnx")

    def in_use(server: workbench.Workbench) -> bool:
        return bool(server.snapshot().models and server.snapshot().models[0].leases)

    async def cancelled(wb: Connection, server: workbench.Workbench) -> None:
        task = asyncio.create_task(wb.ainfer("endless", ENDLESS))
        while not in_use(server):  # noqa: ASYNC110  # threads tell nobody
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while in_use(server):  # noqa: ASYNC110
            await asyncio.sleep(0)

    with workbench.Workbench(tmp_path, device="cpu") as server, workbench.connect(server.url) as wb:
        with pytest.raises(DeadlineExceeded):
            wb.infer("endless", ENDLESS, timeout_s=0.05)
        until(lambda: not in_use(server))
        asyncio.run(cancelled(wb, server))


def test_what_was_asked_during_a_load_is_asked_anew() -> None:
    """The model may be another after it."""
    datatype = "FP32"

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal datatype
        if request.url.path.endswith("/load"):
            wb.signature("m")  # as by another thread
            datatype = "INT64"
        inputs = [{"name": "x", "datatype": datatype, "shape": [1]}]
        return httpx.Response(200, json={"name": "other", "inputs": inputs})

    with answered_by(answer) as wb:
        wb.load("m")
        assert wb.signature("m").inputs["x"].datatype == "INT64"


def test_columns_of_text() -> None:
    """A table's column of text is texts, not files of images: one for each row."""
    column = {"text": ("BYTES", [-1, 1])}
    table = pd.DataFrame({"text": ["a", "b"], "other": [1, 2]})
    with workbench.Workbench(token="a-token-of-this-test") as server:
        server.register(lambda text: text, name="echo", inputs=column, outputs=column)
        with workbench.connect(server.url) as wb:
            assert wb.infer("echo", {"text": table["text"]}).tolist() == [["a"], ["b"]]


def test_an_inference_is_sent_once() -> None:
    """A run is not repeated when the connection breaks: a function would be called twice."""
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        if request.url.path.endswith("/infer"):
            raise httpx.RemoteProtocolError("the server went away")
        return httpx.Response(200, json={"name": "other", "inputs": [], "outputs": []})

    with answered_by(answer) as wb, pytest.raises(ServerNotRunning, match="the server went away"):
        wb.infer("m", {"x": np.zeros(1, np.float32)})
    assert sent.count("/v2/models/m/infer") == 1


@pytest.mark.parametrize("text", ["<html>a login page</html>", "{}"])
def test_a_server_that_speaks_something_else(text: str) -> None:
    """Whatever answers there, the error is one of ours: what was asked, answered and expected."""
    with pytest.raises(NotSupported) as caught:
        answered_by(lambda _: httpx.Response(200, text=text))
    answered = f"GET http://elsewhere/v2 was answered with {text!r}"
    assert str(caught.value) == f"{answered}, which is not what the V2 protocol has there"


@pytest.mark.parametrize("text", ["<html>a login page</html>", "[{}]"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda wb: wb.names,
        lambda wb: wb.models,
        lambda wb: wb.events,
        lambda wb: wb.infer("m", {"x": np.zeros(1, np.float32)}),
        lambda wb: wb.unload("m"),
    ],
)
def test_an_answer_that_cannot_be_read(ask: Callable[[Connection], object], text: str) -> None:
    """After good metadata, too: one line says what was asked, answered and expected."""
    about = {"name": "workbench", "extensions": ["statistics", "model_configuration"]}

    def answer(request: httpx.Request) -> httpx.Response:
        good = request.url.path == "/v2"
        return httpx.Response(200, json=about) if good else httpx.Response(200, text=text)

    with answered_by(answer) as wb, pytest.raises(NotSupported, match="is not what the") as caught:
        ask(wb)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_address() -> None:
    """It is told as that, before anything is asked."""
    with pytest.raises(UsageError, match=r"^'ftp://host' is no address of a server"):
        workbench.connect("ftp://host")


def test_errors_are_the_same(wb: Connection) -> None:
    """What the server refuses is the error that a workbench raises."""
    for ask in (
        lambda: wb.infer("nobody", [[1.0]]),
        lambda: wb.load("nobody"),
        lambda: wb.unload("nobody"),
    ):
        with pytest.raises(ModelNotFound, match=r"^there is no model 'nobody'; available: "):
            ask()
    for ask_of in (wb.load, wb.unload, wb.signature):
        with pytest.raises(ModelNotFound, match=r"no model 'digts'; did you mean 'digits'\?$"):
            ask_of("digts")
    for ask in (lambda: wb.infer("", [1]), lambda: wb.load(""), lambda: wb.signature("")):
        with pytest.raises(ModelNotFound, match=r"^'' cannot be the name of a model$"):
            ask()
    with pytest.raises(ModelNotFound, match=r"^model 'wine' has no version 7; it has 1$"):
        wb.infer("wine", [[1.0]], version=7)
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 13\], got \[1, 1\]"):
        wb.infer("wine", [[1.0]])


def test_the_token(elsewhere: str) -> None:
    """The token of one's own server is found; without it the server refuses."""
    with (
        pytest.raises(TokenRequired),
        workbench.connect(elsewhere, token="a-wrong-token-of-ours") as wb,
    ):
        _ = wb.models
    with workbench.connect(elsewhere) as wb:
        assert "workbench" in repr(wb)


def test_a_closed_connection(elsewhere: str) -> None:
    """It says that it is closed, in one line."""
    wb = workbench.connect(elsewhere)
    wb.close()
    ask: tuple[Callable[[], object], ...] = (
        lambda: wb.models,
        lambda: wb.infer("digits", np.zeros((1, 64))),
    )
    for each in ask:
        with pytest.raises(UsageError, match=r"is closed: connect\(\) again"):
            each()


def test_a_server_without_binary_data(wb: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not tell of the extension is asked in plain JSON."""
    monkeypatch.setattr(wb, "_about", {"name": "other", "extensions": []})
    assert wb.infer("wine", np.zeros((2, 13))).shape[0] == 2


# ── servers that a function stands for ──

ONE = {"name": "x", "datatype": "FP32", "shape": [-1]}
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}
BINARY = ["binary_tensor_data", "model_configuration", "statistics"]


class Elsewhere:
    """A server with models of one input; *replies* by the end of a path replace its own."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.sent: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        path = request.url.raw_path.decode()
        for end, reply in self.replies.items():
            if path.endswith(f"/{end}"):
                if isinstance(reply, Exception):
                    raise reply
                if callable(reply):
                    return reply()
                return (
                    reply if isinstance(reply, httpx.Response) else httpx.Response(200, json=reply)
                )
        if path.endswith("/infer"):
            return httpx.Response(200, json={"outputs": [OUTPUT]})
        return httpx.Response(200, json={"name": "other", "inputs": [ONE], "outputs": [OUTPUT]})

    def asked(self, end: str) -> int:
        """How many requests had a path that ends so."""
        return sum(request.url.path.endswith(end) for request in self.sent)


def ways(wb: Connection) -> dict[str, Callable[[], object]]:
    return {
        "infer": lambda: wb.infer("m", [1.0]),
        "ainfer": lambda: asyncio.run(wb.ainfer("m", [1.0])),
    }


@pytest.mark.parametrize("way", ["infer", "ainfer"])
def test_after_an_error_the_model_is_looked_at_anew(way: str) -> None:
    """It may be another by now; until then it is asked for once. The error is the server's."""
    told = b'{"error": "no such input"}'
    server = Elsewhere(
        infer=httpx.Response(400, content=told),
        generate_stream=lambda: httpx.Response(400, content=iter([told])),  # as it comes in
    )
    with answered_by(server) as wb:
        wb.signature("m")
        for looks in (1, 2):
            with pytest.raises(InvalidRequest, match=r"^no such input$"):
                ways(wb)[way]()
            assert server.asked("/models/m") == looks


@pytest.mark.parametrize("way", ["infer", "ainfer"])
@pytest.mark.parametrize(
    ("broken", "error", "told"),
    [
        (httpx.ConnectError("[Errno 111] refused"), ServerNotRunning,
         "^no server answers at http://elsewhere: refused$"),
        (httpx.ReadTimeout("slow"), DeadlineExceeded, "^http://elsewhere did not answer in time$"),
        (httpx.RemoteProtocolError("it went away"), ServerNotRunning, "it went away$"),
    ],
    ids=["refused", "slow", "broken"],
)  # fmt: skip
def test_a_server_that_does_not_answer(
    way: str, broken: Exception, error: type[Exception], told: str
) -> None:
    """That is said in one line; it is not asked again: a function would be called twice."""
    server = Elsewhere(infer=broken)
    with answered_by(server) as wb, pytest.raises(error, match=told):
        ways(wb)[way]()
    assert server.asked("/infer") == 1


def test_how_long_an_answer_may_take() -> None:
    """As long as the connection says, or the request."""
    server = Elsewhere()
    with answered_by(server) as wb:
        wb.infer("m", [1.0])
        wb.infer("m", [1.0], timeout_s=0.5)
    limits = [request.extensions["timeout"]["read"] for request in server.sent]
    assert limits == [1.0, 1.0, 1.0, 0.5]


def test_the_names_of_models_with_versions() -> None:
    """Each name is there once."""
    rows = [{"name": name, "version": version} for name in ("m", "n") for version in ("1", "2")]
    with answered_by(Elsewhere(index=rows)) as wb:
        assert wb.names == ("m", "n")


@pytest.mark.parametrize(
    "reply", [[1], {"names": []}, httpx.Response(200, text="<html>"), httpx.Response(500, text="")]
)
def test_a_server_without_a_list(reply: Any) -> None:
    """Whatever is there in its place."""
    none = httpx.Response(404, text="no")
    server = Elsewhere(index=none, models=reply)
    with answered_by(server) as wb, pytest.raises(NotSupported, match=r"lists no models$"):
        _ = wb.models


def test_statistics_that_a_server_lacks() -> None:
    """They are not asked for; where it has them, they are. Go writes null for an empty list."""
    rows = [{"name": "m", "version": "1", "state": "READY"}]
    for extensions in ([], None, BINARY):
        about = {"name": "other", "extensions": extensions}
        server = Elsewhere(v2=about, index=rows, stats={"model_stats": []})
        with answered_by(server) as wb:
            assert [model.id.name for model in wb.models] == ["m"]
        assert server.asked("/stats") == bool(extensions)
    unlike = Elsewhere(v2=about, index=rows, stats={"model_stats": [{"name": "m"}]})
    with answered_by(unlike) as wb, pytest.raises(NotSupported, match="which is not what the V2"):
        assert wb.models


def test_versions_have_signatures_of_their_own() -> None:
    """Each is asked for once."""
    server = Elsewhere()
    with answered_by(server) as wb:
        for _ in range(2):
            for version in (None, 1, 2):
                wb.signature("m", version)
    asked = [request.url.path for request in server.sent]
    assert asked[1:] == ["/v2/models/m", "/v2/models/m/versions/1", "/v2/models/m/versions/2"]


@pytest.mark.parametrize(
    "config", [{}, {"input": None}, {"input": [1]}, [1], httpx.Response(500, text="")]
)
def test_optional_inputs_that_are_not_told(config: Any) -> None:
    """Then all are needed."""
    about = {"name": "other", "extensions": BINARY}
    two = {"inputs": [ONE, {**ONE, "name": "z"}], "outputs": [OUTPUT]}
    with answered_by(Elsewhere(v2=about, config=config, m=two)) as wb:
        assert list(wb.signature("m").required) == ["x", "z"]


def test_what_is_misspelt(elsewhere: str) -> None:
    """The attribute and the argument that were meant are told."""
    with answered_by(Elsewhere()) as wb, pytest.raises(AttributeError, match="you mean 'load'"):
        _ = wb.lod
    with pytest.raises(UsageError, match="connect: there is no argument 'tokn'; did you mean"):
        workbench.connect(elsewhere, tokn="x")  # type: ignore[call-arg]


def test_a_token_is_sent_if_there_is_one() -> None:
    """In the header that a workbench reads."""
    for token in ("", "of-this-test"):
        server = Elsewhere()
        with Connection("http://elsewhere", token, 1.0, httpx.MockTransport(server)):
            pass
        told = server.sent[0].headers.get("authorization")
        assert told == (f"Bearer {token}" if token else None)


def test_outputs_in_json_and_in_binary() -> None:
    """Each binary one has its bytes, one after the other; one of no bytes is one, too."""
    head = {
        "outputs": [
            {"name": name, "datatype": "INT32", "shape": [len(data)], **(
                {"data": data} if name == "plain"
                else {"parameters": {"binary_data_size": 4 * len(data)}}
            )}
            for name, data in (("a", [1, 2]), ("plain", [3]), ("none", []), ("b", [4]))
        ]
    }  # fmt: skip
    text = json.dumps(head).encode()
    tail = np.array([1, 2, 4], np.int32).tobytes()
    size = {"inference-header-content-length": str(len(text))}
    server = Elsewhere(infer=httpx.Response(200, content=text + tail, headers=size))
    with answered_by(server) as wb:
        outputs = {name: array.tolist() for name, array in wb.infer("m", [1.0]).items()}
    assert outputs == {"a": [1, 2], "plain": [3], "none": [], "b": [4]}
