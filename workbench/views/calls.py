"""The same inference request as people send it: with curl, with tritonclient, in Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

_NUMPY = {
    "BOOL": "bool", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object",
}  # fmt: skip


def infer_path(model: str) -> str:
    """The path that answers inference requests to *model*."""
    return f"/v2/models/{quote(model, safe='')}/infer"


def curl_call(url: str, model: str, body: str, *, token: bool) -> str:
    """The request as a command of a shell; the token is the variable ``WORKBENCH_TOKEN``."""
    header = ' -H "Authorization: Bearer $WORKBENCH_TOKEN"' if token else ""
    address = shlex.quote(url + infer_path(model))
    return f"curl{header} -H 'Content-Type: application/json' {address} -d {shlex.quote(body)}"


def python_call(url: str, model: str, body: str, *, token: bool) -> str:
    """The request with nothing but Python's own library."""
    header = ', "Authorization": "Bearer " + os.environ["WORKBENCH_TOKEN"]' if token else ""
    return (
        f"import json, {'os, ' if token else ''}urllib.request\n\n"
        f"request = urllib.request.Request(\n    {url + infer_path(model)!r},\n"
        f"    data={body!r}.encode(),\n"
        f'    headers={{"Content-Type": "application/json"{header}}},\n)\n'
        "print(json.load(urllib.request.urlopen(request)))"
    )


def triton_call(url: str, model: str, request: Mapping[str, Any], *, token: bool) -> str:
    """The request with tritonclient (``pip install tritonclient[http]``)."""
    host = url.split("://", 1)[-1]
    lines = [
        f"import {'os, ' if token else ''}numpy as np, tritonclient.http as triton\n",
        f"client = triton.InferenceServerClient({host!r})",
        "inputs = []",
    ]
    for tensor in request["inputs"]:
        name, shape, datatype = tensor["name"], tensor["shape"], tensor["datatype"]
        array = f"np.array({tensor['data']!r}, {_NUMPY.get(datatype, datatype)!r})"
        lines.append(f"inputs.append(triton.InferInput({name!r}, {shape!r}, {datatype!r}))")
        lines.append(f"inputs[-1].set_data_from_numpy({array}.reshape({shape!r}))")
    header = ', headers={"Authorization": "Bearer " + os.environ["WORKBENCH_TOKEN"]}'
    lines.append(f"result = client.infer({model!r}, inputs{header if token else ''})")
    lines.append('print({out["name"]: result.as_numpy(out["name"])')
    lines.append('       for out in result.get_response()["outputs"]})')
    return "\n".join(lines)


def answer_html(url: str, model: str, body: str, answer: str, *, token: bool) -> str:
    """*answer* to the request *body*, and how to send it from elsewhere."""
    calls = [("curl", curl_call(url, model, body, token=token))]
    request = _readable(body)
    if request is not None:
        calls.append(("tritonclient", triton_call(url, model, request, token=token)))
    calls.append(("Python", python_call(url, model, body, token=token)))
    shown = "".join(
        f"<details><summary>the same with {name}</summary><pre>{escape(code)}</pre></details>"
        for name, code in calls
    )
    return f'<div class="wbd"><pre>{escape(answer)}</pre>{shown}</div>'


def _readable(body: str) -> dict[str, Any] | None:
    """The request in *body*, if it is one whose tensors are written out."""
    try:
        request = json.loads(body)
        complete = all(
            {"name", "shape", "datatype", "data"} <= tensor.keys() for tensor in request["inputs"]
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return request if complete else None
