"""Triton's "Generate Extension" over HTTP: one answer, or a stream of events that holds it."""

from __future__ import annotations

import asyncio

from workbench.codecs.generate import decode_request, encode_response
from workbench.core import Describe, ServerCore
from workbench.errors import RunFailed
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply
from workbench.http.status import error_reply
from workbench.inference import InferRequest

_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


async def generate(core: ServerCore, call: Call) -> Reply:
    """``/generate``: the answer as a JSON object."""
    return json_reply(await _answer(core, call))


async def generate_stream(core: ServerCore, call: Call) -> Reply:
    """``/generate_stream``: the answer as the only server-sent event, since models give one.

    As in Triton an error of the model is an event too, under its own status;
    any other error, which comes before the model runs, is plain JSON.
    """
    try:
        return _event(await _answer(core, call))
    except RunFailed as error:
        reply = error_reply(error)
        return _event(b"".join(reply.parts), reply.status)


def _event(data: bytes, status: int = 200) -> Reply:
    return Reply(status, (_EVENTS,), (b"data: ", data, b"\n\n"))  # orjson writes one line


async def _answer(core: ServerCore, call: Call) -> bytes:
    """The answer as JSON. To cancel it ends the request."""
    name, version = call.target.name, call.target.version

    def read(describe: Describe) -> InferRequest:
        body, signature = call.inflated(), describe()
        request = decode_request(name, version, body, signature, call.max_nesting)
        request.functions = call.functions
        return request

    answering = core.start(name, version, read, write=encode_response, nbytes=len(call.body))
    return await asyncio.wrap_future(answering)
