"""SageMaker's client, both parsers of JSON, and an event loop."""

import asyncio
from collections.abc import Iterator

import pytest
from foreign import Foreign

from workbench.codecs import json_parser


@pytest.fixture(scope="session")
def boto3() -> Iterator[Foreign]:
    """Boto3's client of sagemaker-runtime."""
    client = Foreign("boto3_client.py")
    yield client
    client.close()


@pytest.fixture(params=["simdjson", "python"] if json_parser.HAS_SIMDJSON else ["python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of JSON: simdjson, or Python's own, as where simdjson is not installed."""
    if request.param == "python":
        monkeypatch.setattr(json_parser, "_parser", None)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """An event loop."""
    with asyncio.Runner() as runner:
        yield runner
