"""boto3's sagemaker-runtime at the end of a pipe. Runs in .venv-clients."""

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from talk import talk

_clients: dict[str, Any] = {}


def client(url: str, mode: str) -> Any:
    """The client of the server at *url*, in a retry *mode*."""
    if url + mode not in _clients:
        _clients[url + mode] = boto3.client(
            "sagemaker-runtime",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="0123456789abcdef",
            aws_secret_access_key="x",
            # a retry would be counted: on a loaded machine none is to come from a timeout
            config=Config(retries={"mode": mode}, connect_timeout=300, read_timeout=300),
        )
    return _clients[url + mode]


async def do(method: str, arguments: dict[str, Any]) -> Any:
    """The client's own *method*; of an error, what botocore has read of it."""
    runtime = client(arguments.pop("url"), arguments.pop("mode", "standard"))
    try:
        answer = getattr(runtime, method)(**arguments)
    except ClientError as error:
        return {"class": type(error).__name__, **error.response}
    return {**answer, "Body": answer["Body"].read().decode()}


talk(do)
