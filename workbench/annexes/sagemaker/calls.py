"""A request with boto3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.views.calls import arrays_of, is_file


def boto3_call(url: str, model: str, request: Mapping[str, Any], *, token: bool) -> str:
    """The request with boto3 (``pip install boto3``), to the endpoint of the model's name."""
    plain = {name: value.tolist() for name, value in arrays_of(request).items()}
    body = json.dumps(request if any(map(is_file, request["inputs"])) else plain)
    key = 'os.environ["WORKBENCH_TOKEN"]' if token else "'any'"
    return (
        f"import {'os, ' if token else ''}boto3\n\n"
        f"client = boto3.client(\n    'sagemaker-runtime', endpoint_url={url!r},\n"
        f"    region_name='us-east-1', aws_access_key_id={key}, aws_secret_access_key='any',\n)\n"
        f"answer = client.invoke_endpoint(\n    EndpointName={model!r}, "
        f"ContentType='application/json',\n    Body={body!r},\n)\n"
        "print(answer['Body'].read().decode())"
    )
