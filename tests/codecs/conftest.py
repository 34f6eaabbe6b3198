"""What tests of several codecs use."""

from collections.abc import Iterator

import pytest

from workbench.codecs import json_parser

PARSERS = ["simdjson", "python"] if json_parser.HAS_SIMDJSON else ["python"]


@pytest.fixture(params=PARSERS, scope="module")
def parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """The parser of JSON: simdjson, or Python's own, as where simdjson is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(json_parser, "_parser", None)
        yield request.param
