"""Invocations of SageMaker's models: from the head and the body of a request to its reply."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from msgspec import Struct
from msgspec.structs import replace

from workbench.annexes.sagemaker.code import code_reply, code_request, is_code
from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.names import core_name, platform_name
from workbench.annexes.sagemaker.payloads.formats import PayloadForm, PayloadRequest, encode
from workbench.annexes.sagemaker.refusals import refused
from workbench.core import Describe
from workbench.errors import ModelNotFound
from workbench.http.access import Headers, joined
from workbench.http.calls import HttpCall, in_thread
from workbench.http.infer import unless
from workbench.http.lane import Lane
from workbench.http.paths import Target
from workbench.http.reply import Reply
from workbench.http.route import PathParameter, PathPattern
from workbench.http.shapes import TEXT
from workbench.inference import InferRequest, InferResponse

NAME = "container_model"  # the parameter of paths
MODEL = f"/models/{{{NAME}}}"
INVOKE = f"{MODEL}/invoke"
INVOCATIONS = "/invocations"
TARGET = b"x-amzn-sagemaker-target-model"
PARAMETERS = {NAME: PathParameter(b"[^/]+", "model", ModelNotFound, TEXT, example="my_model")}

_PATTERN = PathPattern.of(INVOKE, PARAMETERS)
_BY_HEADER = INVOCATIONS.encode()
_LONG_WAY = (b"content-encoding", b"inference-header-content-length")
_INLINE_NBYTES = 2**16  # a body that takes much less than a millisecond to read


class Invocation(Struct):
    """One request to *container*: what is *asked*, its *body* and *headers*. See ``InlineCall``.

    *called* is the model that its path names, ``None`` if it names none. Without its body it is
    the head of such requests.
    """

    container: Container
    asked: PayloadRequest
    body: bytes = b""
    headers: Headers = ()
    called: str | None = None
    request_id: bytes = b""
    form: PayloadForm | None = None

    @property
    def target(self) -> Target:
        return Target(self.asked.name, None)

    @property
    def is_small(self) -> bool:
        return len(self.body) <= _INLINE_NBYTES

    def read(self, describe: Describe) -> InferRequest:
        """The request, for the model that *describe* describes. Raises ``ModelNotFound``."""
        asked = self.asked
        self.container.check_loaded(asked.name)
        signature = describe()
        if is_code(signature):
            request = code_request(asked.name, self.body, asked.content_type, asked.accept)
            request.headers = self.headers
        else:
            request, self.form = asked.read(self.body, signature)
        request.functions = asked.functions
        return request

    def write(self, response: InferResponse) -> Reply:
        form, name = self.form, self.asked.name
        if form is None:
            return code_reply(response)
        if form.v2 is not None and (called := platform_name(name)) is not None:
            response = replace(response, model=response.model._replace(name=called))
        return encode(response, form)

    def reply(self, answer: InferResponse | BaseException | None) -> Reply | None:
        if answer is None:
            return None
        try:
            if isinstance(answer, BaseException):
                raise answer
            return self.write(answer)
        except Exception as error:  # the client must hear of it, whatever it is
            return refused(error, self.called)

    def now(self) -> Reply | None:
        """The reply, if it takes no waiting and little time; else ``None``. Raises as ``read``."""
        if not self.is_small:
            return None
        response = self.container.core.requests.infer_now(self.asked.name, None, self.read)
        return None if response is None else self.write(response)

    def start(self) -> Future[Reply]:
        """The reply; to cancel it ends the request. Raises ``ModelNotFound``."""
        name, nbytes = self.asked.name, len(self.body)
        self.container.check_loaded(name)
        return self.container.core.requests.start(
            name, None, self.read, write=self.write, nbytes=nbytes, quick=self.is_small
        )


async def invoked(container: Container, call: HttpCall, name: str) -> Reply:
    """The answer of the core's model *name* to *call*."""
    text = call.body
    if call.header(b"content-encoding"):
        text = await unless(call.gone, in_thread(container.core, call.inflated, waits=True))
    kind, accept = call.header(b"content-type"), joined(call.headers, b"accept")
    asked = container.asked(name, kind, accept, functions=call.functions)
    invocation = Invocation(container, asked, text, call.headers)
    reply = invocation.now()
    if reply is not None:
        return reply
    return await unless(call.gone, asyncio.wrap_future(invocation.start()))


# ── the short cut ──


class Invocations(Lane):
    """The invocations of *container* that the short cut takes.

    Those of models that a header names, too, unless *loads* says that they may have to be loaded.
    """

    ends = (b"/invoke", b"/invocations")
    heads = Invocation

    def __init__(self, container: Container, *, loads: bool) -> None:
        self._container = container
        self._loads = loads

    def read_head(self, url: bytes, headers: Headers) -> Invocation | None:
        kind = target = request_id = b""
        accepts: list[bytes] = []  # several lines are one list
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"accept":
                accepts.append(value)
            elif name == TARGET:
                target = value
            elif name == b"x-request-id":
                request_id = value
            elif name in _LONG_WAY:
                return None
        if url != _BY_HEADER:
            found = _PATTERN.match(url)
            if found is None:
                return None
            called, model_name = found[NAME], found[NAME]
        elif self._loads or not target:
            return None
        else:
            called, model_name = None, target.decode("utf-8", "replace")
        asked = self._container.asked(core_name(model_name), kind, b", ".join(accepts))
        return Invocation(self._container, asked, b"", headers, called, request_id)

    def call(self, head: Invocation, body: bytes | memoryview) -> Invocation | None:
        invocation = replace(head, body=bytes(body))
        return invocation if invocation.is_small else None

    async def answer_later(self, head: Invocation, body: bytes | memoryview) -> Reply:
        try:
            return await asyncio.wrap_future(replace(head, body=bytes(body)).start())
        except Exception as error:  # the client must hear of it, whatever it is
            return self.failed(error, head)

    def failed(self, error: Exception, head: Invocation) -> Reply:
        return refused(error, head.called)
