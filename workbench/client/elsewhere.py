"""The V2 protocol as a client speaks it: what it writes, and how it reads what is answered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

from workbench import errors
from workbench.codecs import v2_binary, v2_json
from workbench.errors import ModelNotFound, NotSupported, UsageError, WorkbenchError
from workbench.image_forms import image_forms
from workbench.model import ModelId, Signature, TensorSpec
from workbench.tensor import Tensor, has_missing
from workbench.views.text import cut

BINARY = "binary_tensor_data"  # the name of the protocol's extension
HEADER_SIZE = "inference-header-content-length"

_FUNCTION = "python"  # the platform of Python functions
_SHOWN_CHARS = 60  # characters of an answer that cannot be read
_SAID_AGAIN = re.compile(
    "(Request for unknown model|failed to load '.*'): "
    "(?=there is no model|model .* has no version|'.*' cannot be the name)",
    re.DOTALL,
)
"""What a workbench sends before a sentence that says the same."""
_ERRORS: Mapping[int, type[WorkbenchError]] = {
    400: errors.InvalidRequest,
    401: errors.TokenRequired,
    403: errors.AccessDenied,
    404: errors.ModelNotFound,
    413: errors.RequestTooLarge,
    501: errors.NotSupported,
    503: errors.ModelNotReady,
    507: errors.MemoryExhausted,
}


def address_of(url: object) -> str:
    """*url* as the address of a server, without the protocol's path. Raises ``UsageError``."""
    if not isinstance(url, str | int) or isinstance(url, bool):
        raise UsageError(f"the url of a server is a text, such as wb.url, not {type(url).__name__}")
    text = str(url).strip()
    if text.isdecimal():
        text = f"127.0.0.1:{text}"
    if text.startswith("unix:"):
        raise UsageError(
            f"{url!r} is a socket file, which only clients of your own can ask, such as curl "
            "--unix-socket: give an address such as http://127.0.0.1:8000"
        )
    address = (text if "://" in text else f"http://{text}").rstrip("/").removesuffix("/v2")
    if not _is_address(address):
        raise UsageError(
            f"{url!r} is no address of a server: give one such as http://127.0.0.1:8000, or a port"
        )
    return address


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        (parts.hostname or "").encode("idna")
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port above 65535
        return False
    return known and text.isprintable() and " " not in text


def path_of_model(model: str, version: int | None = None) -> str:
    """The path of *model* below a server's address. Raises ``ModelNotFound`` if it is empty."""
    if not model:
        raise ModelNotFound(f"{model!r} cannot be the name of a model")
    path = f"v2/models/{quote(model, safe='')}"
    return path if version is None else f"{path}/versions/{version}"


def write_request(
    tensors: Mapping[str, Tensor], output: str | None = None, *, binary: bool
) -> tuple[bytes, dict[str, str]]:
    """The body of a request for one *output* or all, and its headers.

    If *binary*, the server takes binary data after the JSON; texts of which one is missing are
    JSON.
    """
    entries: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for name, tensor in tensors.items():
        entry: dict[str, Any]
        entry = {"name": name, "shape": tensor.shape, "datatype": tensor.datatype}
        if binary and not (tensor.datatype == "BYTES" and has_missing(tensor.array)):
            tail.append(bytes(v2_binary.encode(tensor)))
            entry["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            entry["data"] = v2_json.encode(name, tensor)
        entries.append(entry)
    request: dict[str, Any] = {"inputs": entries}
    if binary:
        request["parameters"] = {"binary_data_output": True}
    if output is not None:
        wanted: dict[str, Any] = {"name": output}
        request["outputs"] = [wanted | ({"parameters": {"binary_data": True}} if binary else {})]
    head = v2_json.write(request)
    if not tail:
        return head, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_SIZE: str(len(head))}
    return b"".join((head, *tail)), headers


def signature_of(model: ModelId, told: Mapping[str, Any]) -> Signature:
    """The signature of *model* by its metadata, in which some servers tell no inputs."""
    platform = told.get("platform", "")
    inputs, outputs = _specs(told.get("inputs")), _specs(told.get("outputs"))
    if platform == _FUNCTION:  # it takes arrays; which texts may be missing, the server knows
        inputs = {n: replace(s, missing=s.datatype == "BYTES") for n, s in inputs.items()}
        return Signature(platform, inputs, outputs)
    # in which form it takes the images, the server knows
    return Signature(platform, inputs, outputs, image_forms=image_forms(model, inputs, {}))


def _specs(entries: list[dict[str, Any]] | None) -> dict[str, TensorSpec]:
    return {
        each["name"]: TensorSpec(each["name"], each["datatype"], tuple(map(int, each["shape"])))
        for each in entries or ()
    }


def error_of(status: int, body: bytes) -> WorkbenchError:
    """The error that a reply tells, of the class of a workbench's error of this status.

    ``RunFailed`` for any other.
    """
    text = body.decode("utf-8", "replace")
    try:
        told = json.loads(body)
        text = str(told["error"] if "error" in told else told["detail"])  # the latter is FastAPI's
    except (ValueError, KeyError, TypeError):
        text = text[:200]
    text = _SAID_AGAIN.sub("", text, count=1)
    return _ERRORS.get(status, errors.RunFailed)(text or f"the server answered {status}")


@contextmanager
def reading(asked: str, body: bytes) -> Iterator[None]:
    """For reading the *body* that answers what was *asked*.

    Raises ``NotSupported`` if it is not what the protocol has there.
    """
    try:
        yield
    except (errors.InvalidRequest, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        told = body.decode("utf-8", "replace").strip()
        shown = repr(cut(told, _SHOWN_CHARS)) if told else "nothing"
        raise NotSupported(
            f"{asked} was answered with {shown}, which is not what the V2 protocol has there"
        ) from None
