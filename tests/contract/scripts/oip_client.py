"""open-inference-openapi's two clients at the end of a pipe. Runs in .venv-clients."""

import inspect
from functools import cache
from typing import Any

from open_inference.openapi import InferenceRequest
from open_inference.openapi.client import AsyncOpenInferenceClient, OpenInferenceClient
from talk import talk

KINDS = {"sync": OpenInferenceClient, "async": AsyncOpenInferenceClient}


@cache
def client_of(kind: str, base_url: str) -> Any:
    return KINDS[kind](base_url=base_url)


async def do(method: str, arguments: dict[str, Any]) -> Any:
    """The client's own *method*; ``client`` says which of the two, ``base_url`` of which server."""
    client = client_of(arguments.pop("client"), arguments.pop("base_url"))
    if "request" in arguments:
        arguments["request"] = InferenceRequest.parse_obj(arguments["request"])
    answer = getattr(client, method)(**arguments)
    if inspect.isawaitable(answer):
        answer = await answer
    return answer if answer is None else answer.dict()


talk(do)
