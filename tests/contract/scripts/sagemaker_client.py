"""The SageMaker SDK at the end of a pipe. Runs in .venv-sagemaker."""

import os
import sys
from contextlib import redirect_stdout
from typing import Any
from urllib.parse import urlsplit

os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x"}
os.environ |= {"AWS_SECRET_ACCESS_KEY": "x", "SAGEMAKER_TELEMETRY_OPT_OUT": "true"}

with redirect_stdout(sys.stderr):  # it logs to the standard output, where answers go
    import boto3
    from sagemaker import Session, deserializers, serializers
    from sagemaker.local import LocalSagemakerRuntimeClient
    from sagemaker.predictor import Predictor
    from talk import talk


async def do(method: str, arguments: dict[str, Any]) -> Any:
    """What a Predictor answers, by boto3 ("remote") or in local mode ("local").

    *sends* and *takes* name its serializer and its deserializer, such as JSON.
    """
    url, target, rows = (arguments[name] for name in ("url", "target", "rows"))
    sends, takes = (arguments.get(name, "JSON") for name in ("sends", "takes"))
    if method == "local":
        client = LocalSagemakerRuntimeClient({"local": {"serving_port": urlsplit(url).port}})
    else:
        client = boto3.client("sagemaker-runtime", endpoint_url=url)
    session = Session(boto3.Session(), sagemaker_client=object(), sagemaker_runtime_client=client)
    serializer = getattr(serializers, f"{sends}Serializer")()
    deserializer = getattr(deserializers, f"{takes}Deserializer")()
    answer = Predictor("mme", session, serializer, deserializer).predict(rows, target_model=target)
    return answer.tolist() if hasattr(answer, "tolist") else answer


talk(do)
