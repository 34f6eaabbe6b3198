"""The SageMaker SDK at the end of a pipe. Runs in .venv-sagemaker."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Any
from urllib.parse import urlsplit

os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x"}
os.environ |= {"AWS_SECRET_ACCESS_KEY": "x", "SAGEMAKER_TELEMETRY_OPT_OUT": "true"}

with redirect_stdout(sys.stderr):  # it logs to the standard output, where answers go
    import boto3
    from sagemaker import Session
    from sagemaker.deserializers import CSVDeserializer, JSONDeserializer
    from sagemaker.local import LocalSagemakerRuntimeClient
    from sagemaker.predictor import Predictor
    from sagemaker.serializers import CSVSerializer, JSONSerializer
    from talk import talk


def predictor(runtime: Any) -> Predictor:
    session = Session(boto3.Session(), sagemaker_client=object(), sagemaker_runtime_client=runtime)
    return Predictor("mme", session, JSONSerializer(), JSONDeserializer())


async def do(method: str, arguments: dict[str, Any]) -> Any:
    """What a Predictor answers: by boto3 ("remote"), as CSV ("csv"), or in local mode ("local")."""
    url, target, rows = (arguments[name] for name in ("url", "target", "rows"))
    if method == "local":
        client = LocalSagemakerRuntimeClient({"local": {"serving_port": urlsplit(url).port}})
    else:
        client = boto3.client("sagemaker-runtime", endpoint_url=url)
    asked = predictor(client)
    if method == "csv":
        asked.serializer, asked.deserializer = CSVSerializer(), CSVDeserializer()
    return asked.predict(rows, target_model=target)


talk(do)
