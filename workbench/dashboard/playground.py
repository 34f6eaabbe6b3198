"""An example request for a model, and its answer over the wire."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

from workbench.http.openapi.examples import infer_example, is_showable
from workbench.model import Signature
from workbench.views.calls import infer_path
from workbench.views.times import show_seconds

_TIMEOUT_S = 60.0
_SHOWN_CHARS = 4000  # characters of an answer


def example(signature: Signature) -> str:
    """A valid request as JSON, zeros or grey pictures; an empty text if it could not be read."""
    if not is_showable(signature):
        return ""
    return json.dumps(infer_example(signature))


def send(url: str, token: str, model: str, body: str) -> str:
    """Send *body* to *model*. Returns the status, the time and the answer, or the error."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url + infer_path(model), body.encode(), headers)  # noqa: S310  # our own server
    begin_s = time.perf_counter()
    try:
        # no proxy of the environment is between this process and itself
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            status, text = answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode(errors="replace")
    except OSError as error:
        return f"no answer: {error}"
    took = show_seconds(time.perf_counter() - begin_s)
    more = f"\n... {len(text) - _SHOWN_CHARS} characters more" if len(text) > _SHOWN_CHARS else ""
    return f"{status} in {took}\n{text[:_SHOWN_CHARS]}{more}"
