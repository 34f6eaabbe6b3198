"""A request with this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.views.calls import inputs_code


def connect_call(url: str, model: str, request: Mapping[str, Any], *, token: bool) -> str:
    """The request with this package, from any process."""
    given = ', token=os.environ["WORKBENCH_TOKEN"]' if token else ""
    inputs = inputs_code(request)
    libraries = [
        *(["base64"] if "base64." in inputs else []),
        *(["os"] if token else []),
        *(["numpy as np"] if "np." in inputs else []),
    ]
    return (
        f"import {', '.join([*libraries, 'workbench'])}\n\n"
        f"wb = workbench.connect({url!r}{given})\nprint(wb.infer({model!r}, {inputs}))"
    )
