"""Running a model: V2's inference, and Triton's "Generate Extension"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from workbench.codecs.generate import decode_request, encode_response
from workbench.core import Describe
from workbench.errors import NotSupported, RunFailed, ServerNotRunning
from workbench.http import v2
from workbench.http.calls import HttpCall, authorize_run
from workbench.http.infer import DataPlane, unless
from workbench.http.paths import Target
from workbench.http.reply import EVENTS, Reply, StreamedReply, json_reply
from workbench.http.route import Group, Route
from workbench.http.shapes import EVENT_STREAM, OCTETS
from workbench.http.status import error_reply
from workbench.inference import InferRequest, InferResponse

_RUNS = (*v2.READS, 413, 415, 500, 501, 507)


async def _infer(plane: DataPlane, call: HttpCall) -> Reply:
    await authorize_run(plane.core, call, call.name, call.version)
    head = plane.head_of(Target(call.name, call.version), call.headers)
    return await plane.answer(replace(head, functions=call.functions), call.body, call.gone)


async def _generate(plane: DataPlane, call: HttpCall) -> Reply:
    """One answer; an error if the model gives none or several, as in Triton."""
    async with aclosing(_generated(plane, call)) as answers:
        data, more = await anext(answers, None), await anext(answers, None)
    if data is None or more is not None:
        raise NotSupported(
            "generate expects model to produce exactly 1 response, use generate stream for model "
            f"that generates various number of responses: {call.name!r} gave "
            f"{'none' if data is None else 'several'}"
        )
    return json_reply(data)


async def _generate_stream(plane: DataPlane, call: HttpCall) -> Reply:
    """An error of the model is an event too, as in Triton, under its own status if it is the first.

    Any other error comes before the model runs, and is plain JSON.
    """
    answers = _generated(plane, call)
    try:
        first = await anext(answers, None)
    except RunFailed as error:
        reply = error_reply(error)
        return Reply(reply.status, EVENTS, (_event(b"".join(reply.parts)),))
    parts = () if first is None else (_event(first),)
    return StreamedReply(200, EVENTS, parts, _events(answers))


async def _events(answers: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The *answers* as events; an error is the last one."""
    async with aclosing(answers):
        try:
            async for data in answers:
                yield _event(data)
        except Exception as error:  # the client must hear of it; the status was sent long ago
            yield _event(b"".join(error_reply(error).parts))
        except asyncio.CancelledError:  # the server stops, and did not wait longer
            stopping = ServerNotRunning("the server is stopping")
            yield _event(b"".join(error_reply(stopping).parts))


def _event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data  # orjson writes one line


async def _generated(plane: DataPlane, call: HttpCall) -> AsyncGenerator[bytes]:
    """The answers as JSON. If the client goes, or nobody takes them, the request ends."""
    name, version = call.name, call.version
    await authorize_run(plane.core, call, name, version)

    def read(describe: Describe) -> InferRequest:
        text, signature = call.inflated(), describe()
        request = decode_request(name, version, text, signature)
        request.functions = call.functions
        request.headers = call.headers
        return request

    def write(response: InferResponse) -> bytes | None:
        return encode_response(response) if response.outputs else None

    stream = plane.core.requests.stream(name, version, read, write=write, nbytes=len(call.body))
    try:
        while (data := await unless(call.gone, asyncio.wrap_future(stream.take()))) is not None:
            yield data
    finally:
        stream.cancel()


INFERENCE = Group(
    "Inference",
    (
        Route(f"POST {v2.MODEL}/infer", _infer, "infer", "Run a model on tensors",
            f"infer_response, {OCTETS}", _RUNS, f"infer_request, {OCTETS}"),
        Route(f"POST {v2.MODEL}/generate", _generate, "generate", "Run it on flat JSON",
            "generate_response", _RUNS, "generate_request"),
        Route(f"POST {v2.MODEL}/generate_stream", _generate_stream, "generate_stream",
            "The same, as server-sent events", EVENT_STREAM, _RUNS, "generate_request"),
    ),
    v2.MODEL_ERRORS,
    service=lambda plane: plane,
    parameters=v2.PARAMETERS,
    unmatched=v2.NO_MODEL,
)  # fmt: skip
