"""One inference request as people send it: curl, requests, tritonclient, and annexes' ways."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import Any
from urllib.parse import quote

import numpy as np

from workbench.annex import annexes
from workbench.settings import Settings
from workbench.tensor import DATATYPES

_NUMPY = {name: kind.dtype.name for name, kind in DATATYPES.items()} | {"BF16": "float32"}


def infer_path(model: str) -> str:
    """The path that answers inference requests to *model*."""
    return f"/v2/models/{quote(model, safe='')}/infer"


def curl_call(url: str, model: str, body: str, *, token: bool) -> str:
    """The request as a command of a shell; the token is the variable ``WORKBENCH_TOKEN``."""
    header = ' -H "Authorization: Bearer $WORKBENCH_TOKEN"' if token else ""
    address = shlex.quote(url + infer_path(model))
    return f"curl{header} -H 'Content-Type: application/json' {address} -d {shlex.quote(body)}"


def requests_call(url: str, model: str, request: Mapping[str, Any], *, token: bool) -> str:
    """The request with requests (``pip install requests``)."""
    header = '    headers={"Authorization": "Bearer " + os.environ["WORKBENCH_TOKEN"]},\n'
    return (
        f"import {'os, ' if token else ''}requests\n\n"
        f"answer = requests.post(\n    {url + infer_path(model)!r},\n    json={dict(request)!r},\n"
        f"{header if token else ''})\nanswer.raise_for_status()\nprint(answer.json())"
    )


def inputs_code(request: Mapping[str, Any]) -> str:
    """The inputs as ``infer`` takes them: one value, or a dict by name."""
    values = {
        tensor["name"]: _value(tensor, array)
        for tensor, array in zip(request["inputs"], arrays_of(request).values(), strict=True)
    }
    if len(values) == 1:
        return next(iter(values.values()))
    return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"


def arrays_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in their shapes; of those that are not written out, an empty array."""
    return {
        tensor["name"]: np.array(tensor["data"], object).reshape(tensor["shape"])
        if "data" in tensor
        else np.empty(0)
        for tensor in request["inputs"]
    }


def _value(tensor: Mapping[str, Any], array: Any) -> str:
    """The code of a *tensor* for ``infer``: a list, a file's bytes, or zeros."""
    if is_file(tensor) and len(tensor["data"]) == 1:
        return _file(tensor["data"][0])
    return repr(array.tolist()) if "data" in tensor and not is_file(tensor) else _code(tensor)


def is_file(tensor: Mapping[str, Any]) -> bool:
    """True if the data are files, such as pictures, in base64."""
    return "data" in tensor and tensor.get("parameters", {}).get("content_type") == "base64"


def _file(text: str) -> str:
    return f"base64.b64decode({text!r})"


def _code(tensor: Mapping[str, Any]) -> str:
    """The code of a *tensor*'s array; zeros if the elements are not written out."""
    if is_file(tensor):
        files = ", ".join(map(_file, tensor["data"]))
        return f"np.array([{files}], 'object').reshape({tensor['shape']!r})"
    datatype = _NUMPY.get(tensor["datatype"], tensor["datatype"])
    if "data" not in tensor:
        return f"np.zeros({tensor['shape']!r}, {datatype!r})"
    return f"np.array({tensor['data']!r}, {datatype!r}).reshape({tensor['shape']!r})"


def triton_call(url: str, model: str, request: Mapping[str, Any], *, token: bool) -> str:
    """The request with tritonclient (``pip install tritonclient[http]``)."""
    host = url.split("://", 1)[-1]
    files = "base64, " if any(map(is_file, request["inputs"])) else ""
    lines = [
        f"import {files}{'os, ' if token else ''}numpy as np, tritonclient.http as triton\n",
        f"client = triton.InferenceServerClient({host!r})",
        "inputs = []",
    ]
    for tensor in request["inputs"]:
        name, shape, datatype = tensor["name"], tensor["shape"], tensor["datatype"]
        lines.append(f"inputs.append(triton.InferInput({name!r}, {shape!r}, {datatype!r}))")
        lines.append(f"inputs[-1].set_data_from_numpy({_code(tensor)})")
    header = ', headers={"Authorization": "Bearer " + os.environ["WORKBENCH_TOKEN"]}'
    lines.append(f"result = client.infer({model!r}, inputs{header if token else ''})")
    lines.append('print({out["name"]: result.as_numpy(out["name"])')
    lines.append('       for out in result.get_response()["outputs"]})')
    return "\n".join(lines)


def calls(
    settings: Settings, url: str, model: str, request: Mapping[str, Any], *, token: bool
) -> dict[str, str]:
    """The *request* to be pasted, by the name of the client, for a server with *settings*.

    Where inputs are not written out, only clients that take arrays are told.
    """
    ways = {"tritonclient": triton_call(url, model, request, token=token)}
    if is_written_out(request):
        ways["requests"] = requests_call(url, model, request, token=token)
        ways["curl"] = curl_call(url, model, json.dumps(request), token=token)
    more = (annex.calls(settings, url, model, request, token) for annex in annexes())
    return {name: call for found in (*more, ways) for name, call in found.items()}


def is_written_out(request: Mapping[str, Any]) -> bool:
    """True if *request* has all elements of its tensors."""
    return all("data" in tensor for tensor in request["inputs"])


def answer_html(
    settings: Settings, url: str, model: str, body: str, answer: str, *, token: bool
) -> str:
    """*answer* to the request *body*, and how to send it from elsewhere.

    Of a body that is no request with its tensors written out, only curl is told: it sends any.
    """
    ways = {"curl": curl_call(url, model, body, token=token)}
    with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):
        request = json.loads(body)
        if is_written_out(request):
            ways = calls(settings, url, model, request, token=token)
    shown = "".join(
        f"<details><summary>the same with {name}</summary><pre>{escape(code)}</pre></details>"
        for name, code in ways.items()
    )
    return f'<div class="wbd"><pre>{escape(answer)}</pre>{shown}</div>'
