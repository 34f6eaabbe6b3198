"""Calls of the V2 service over gRPC that no client library makes."""

from typing import Any

import grpc
import numpy as np
import pytest

from workbench.protos import message_class

NAME = "inference.GRPCInferenceService"


def message(kind: str, /, **fields: Any) -> Any:
    """A message of the V2 service."""
    return message_class("grpc_service", f"inference.{kind}")(**fields)


def asked(model: str = "client-name", number: int | str = "") -> bytes:
    """A request to *model* for one number, whose id is *number*."""
    made = message("ModelInferRequest", model_name=model, id=str(number))
    made.inputs.add(name="x", datatype="FP32", shape=[1])
    made.raw_input_contents.append(np.ones(1, np.float32).tobytes())
    return bytes(made.SerializeToString())


class Caller:
    """Calls methods of the V2 service with messages of our own, or with any bytes."""

    def __init__(self, url: str) -> None:
        self.channel = grpc.insecure_channel(url)

    def __call__(self, method: str, request: Any, **options: Any) -> Any:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        reply = self.channel.unary_unary(f"/{NAME}/{method}")(data, **options)
        return message_class("grpc_service", f"inference.{method}Response").FromString(reply)

    def refused(self, method: str, request: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
        """The status of a call that fails, and what it says."""
        with pytest.raises(grpc.RpcError) as raised:
            self(method, request, **options)
        return raised.value.code(), raised.value.details()
