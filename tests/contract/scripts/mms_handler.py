"""What multi-model-server runs in the tests: a model that answers with its body and its own name.

The server has room for two models, by its own list, and the load of a third has a MemoryError. A
model that is asked to "fail" does.
"""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

ROOM = 2


def _check_room() -> None:
    config = Path(__file__).with_name("config.properties").read_text()
    found = re.search("^management_address=(.+)$", config, re.MULTILINE)
    assert found
    with urllib.request.urlopen(f"{found[1]}/models", timeout=30) as answer:
        models = json.load(answer)["models"]  # this one too
    if len(models) > ROOM:
        raise MemoryError(f"there is room for {ROOM} models")


def handle(data: list[dict[str, Any]] | None, context: Any) -> list[str] | None:
    """Load at the first call, which brings no data; then answer each request."""
    if data is None:
        _check_room()
        return None
    text = data[0]["body"].decode()
    if text == "fail":
        raise ValueError("on purpose")
    name = Path(context.system_properties["model_dir"], "name").read_text()
    context.set_response_content_type(0, "text/plain")
    return [f"{text} {name}"]
