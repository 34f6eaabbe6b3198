"""Values as a table of pandas, which need not be installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import UsageError


def frame(columns: Mapping[str, object] | Sequence[Mapping[str, object]]) -> Any:
    """A table of *columns* by name, or of rows. Raises ``UsageError`` without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("a table needs pandas: pip install pandas") from None
    return pd.DataFrame(columns)
