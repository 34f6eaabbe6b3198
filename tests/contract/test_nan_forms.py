"""Why NaN and the infinities are text in a JSON answer: of three forms, each client here reads it.

Triton's Java client and go-triton-client, tried elsewhere, read none of the three.
"""

import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import tritonclient.http
from messages import one

FORMS = {  # of NaN and Infinity, by the model that answers so
    "text": '"NaN", "Infinity"',
    "null": "null, null",
    "words": "NaN, Infinity",
}
ANSWER = (
    '{"model_name": "m", "model_version": "1", "outputs": '
    '[{"name": "y", "datatype": "FP64", "shape": [3], "data": [%s, 1.5]}]}'
)

Read = Callable[[str], list[float]]


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = (ANSWER % FORMS[self.path.split("/")[3]]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server whose models answer in one form each."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["triton", "kserve", "oip"])
def client(request: pytest.FixtureRequest, url: str) -> tuple[str, Read]:
    """The name of a client, and what it reads of the answer of a model."""
    name = request.param
    if name == "triton":
        triton = tritonclient.http.InferenceServerClient(url.removeprefix("http://"))
        tensor = tritonclient.http.InferInput("x", [1], "FP64")
        tensor.set_data_from_numpy(np.zeros(1))
        return name, lambda model: list(triton.infer(model, [tensor]).as_numpy("y").tolist())
    foreign = request.getfixturevalue(name)
    if name == "kserve":
        given = {"name": "x", "datatype": "FP64", "shape": [1], "data": [0.0], "binary": False}
        return name, lambda model: list(
            foreign("infer", base_url=url, model_name=model, inputs=[given])["outputs"]["y"]["data"]
        )
    asked = {"client": "sync", "base_url": url, "request": one([0], [1], "FP64")}
    return name, lambda model: list(
        foreign("model_infer", model_name=model, **asked)["outputs"][0]["data"]
    )


READ = {
    "triton": {"text": math.inf, "null": math.nan, "words": math.inf},
    "kserve": {"text": math.inf, "null": math.nan},
    "oip": {"text": math.inf, "words": math.inf},
}
"""By client and form that it reads: what it makes of the infinity."""


@pytest.mark.parametrize("form", FORMS)
def test_which_forms_a_client_reads(client: tuple[str, Read], form: str) -> None:
    """Each client reads text; null, which also loses infinities, and bare words fail one each."""
    name, read = client
    if form in READ[name]:
        np.testing.assert_array_equal(read(form), [math.nan, READ[name][form], 1.5])
    else:
        with pytest.raises(AssertionError, match="raised"):  # the client did
            read(form)
