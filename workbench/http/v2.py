"""The V2 / Open Inference Protocol over HTTP.

Sections named below are those of the Open Inference Protocol's "HTTP/REST"
and of Triton's "Binary Tensor Data Extension".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from workbench.codecs import v2, v2_json
from workbench.core import Lease, ServerCore
from workbench.errors import InvalidRequest, ModelNotFound, NotSupported, VersionNotFound
from workbench.http.reply import Reply, json_reply
from workbench.inference import InferRequest
from workbench.model import ModelMetadata, TensorSpec
from workbench.threads import ThreadPool
from workbench.version import __version__

T = TypeVar("T")

SERVER_NAME = "workbench"
EXTENSIONS = ("binary_tensor_data",)
HEADER_LENGTH = b"inference-header-content-length"

# Decoding a larger body takes many times what a change of thread does.
_LARGE_NBYTES = 2**18

_MODEL_PATH = re.compile(
    rb"/v2/models/(?P<name>.+?)(?:/versions/(?P<version>[^/]+))?(?:/(?P<verb>"
    rb"infer|ready|config|stats|generate|generate_stream|trace/setting))?/?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a path under ``/v2/models/`` names; *verb* is what follows the model, or empty."""

    name: str
    version: int | None
    verb: str


def parse_path(raw_path: bytes) -> Target:
    """The target of *raw_path*, decoded once. Raises ``ModelNotFound``, ``VersionNotFound``."""
    match = _MODEL_PATH.fullmatch(raw_path)
    if match is None:
        raise ModelNotFound("the path names no model")
    try:
        name = unquote_to_bytes(match["name"]).decode()
    except UnicodeDecodeError:
        raise ModelNotFound("the name of the model in the path is not UTF-8") from None
    verb = (match["verb"] or b"").decode("ascii")
    return Target(name, _version(name, match["version"]), verb)


def _version(name: str, text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or text.startswith(b"0") or len(text) > 18:
        shown = text.decode("ascii", "backslashreplace")
        raise VersionNotFound(
            f"model {name!r} has no version {shown!r}: versions are numbers from 1"
        )
    return int(text)


# ── what describes ──────────────────────────────────────────────────────────


def live(core: ServerCore) -> Reply:
    """Health, "Server Live": the process answers."""
    return _json({"live": True})


def ready(core: ServerCore) -> Reply:
    """Health, "Server Ready": requests are accepted; an evicted model changes nothing."""
    if not core.is_open:
        return _json({"ready": False, "live": True, "error": "the server is not running"}, 503)
    return _json({"ready": True, "live": True})


def server_metadata(core: ServerCore) -> Reply:
    """Server Metadata."""
    return _json({"name": SERVER_NAME, "version": __version__, "extensions": EXTENSIONS})


def model_names(core: ServerCore) -> Reply:
    """KServe's list of models, which the protocol itself lacks."""
    return _json({"models": core.names()})


def model_ready(core: ServerCore, target: Target) -> Reply:
    """Health, "Model Ready"."""
    core.check_ready(target.name, target.version)
    return _json({"name": target.name, "ready": True})


def model_metadata(core: ServerCore, target: Target) -> Reply:
    """Model Metadata."""
    return _json(_described(core.metadata(target.name, target.version)))


def _described(metadata: ModelMetadata) -> Mapping[str, object]:
    return {
        "name": metadata.name,
        "versions": [str(version) for version in metadata.versions],
        "platform": metadata.signature.platform,
        "inputs": [_spec(spec) for spec in metadata.signature.inputs.values()],
        "outputs": [_spec(spec) for spec in metadata.signature.outputs.values()],
    }


def _spec(spec: TensorSpec) -> Mapping[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _json(value: object, status: int = 200) -> Reply:
    return json_reply(v2_json.write(value), status)


# ── inference ───────────────────────────────────────────────────────────────


async def infer(
    core: ServerCore, target: Target, headers: Mapping[bytes, bytes], body: bytes
) -> Reply:
    """Inference, JSON or with binary tensors. Raises as ``ServerCore.infer`` does."""
    decode = partial(_decode, target, headers, body)
    large = len(body) > _LARGE_NBYTES
    try:
        request, form = await in_thread(core.running, decode) if large else decode()
    except InvalidRequest:  # that there is no such model is the first thing to say
        await in_thread(core.reading, partial(core.resolve, target.name, target.version))
        raise
    lease = core.lease_now(target.name, target.version) or await _acquired(core, target)
    try:
        answer = partial(_answer, core, lease, request, form)
        if not large and core.runs_briefly(lease, request):
            return answer()
        return await in_thread(core.running, answer)
    finally:
        lease.release()  # also where the run never began


def _decode(
    target: Target, headers: Mapping[bytes, bytes], body: bytes
) -> tuple[InferRequest, v2.ReplyForm]:
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding.strip().lower() not in (b"", b"identity"):
        shown = encoding.decode("latin-1")
        raise NotSupported(f"a body in content-encoding {shown!r} is not read: send it plain")
    return v2.decode_request(target.name, target.version, body, _header_nbytes(headers))


def _header_nbytes(headers: Mapping[bytes, bytes]) -> int | None:
    text = headers.get(HEADER_LENGTH)
    if text is None:
        return None
    if not text.strip().isdigit() or len(text) > 18:
        shown = text.decode("latin-1")
        raise InvalidRequest(f"Inference-Header-Content-Length is not a length: {shown!r}")
    return int(text)


def _answer(core: ServerCore, lease: Lease, request: InferRequest, form: v2.ReplyForm) -> Reply:
    encoded = v2.encode_response(core.run(lease, request), form)
    if not encoded.blobs:
        return json_reply(encoded.head)
    length = str(len(encoded.head)).encode("ascii")
    headers = ((b"content-type", b"application/octet-stream"), (HEADER_LENGTH, length))
    return Reply(200, headers, (encoded.head, *encoded.blobs))


async def _acquired(core: ServerCore, target: Target) -> Lease:
    await in_thread(core.reading, partial(core.resolve, target.name, target.version))
    coming = core.acquire(target.name, target.version)
    try:
        return await asyncio.wrap_future(coming)
    except asyncio.CancelledError:
        core.abandon(coming)
        raise


async def in_thread(threads: ThreadPool, work: Callable[[], T]) -> T:
    """Do *work* in one of *threads*: it takes long, or reads files."""
    return await asyncio.wrap_future(threads.submit(work))
