"""Fields that several messages of Triton's configuration have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from workbench.tensor import DATATYPES

_NO_NAME = re.compile("[\0\ud800-\udfff]")  # what no name of a file can hold


def datatype_of(message: Any) -> str | None:
    """The V2 datatype in the ``data_type`` of *message*; ``None`` if it has none."""
    known = message.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    value = known.get(message.data_type)  # any number parses
    datatype = value.name.removeprefix("TYPE_") if value else ""
    datatype = "BYTES" if datatype == "STRING" else datatype
    return datatype if datatype in DATATYPES else None


def is_plain(filename: str) -> bool:
    """True if *filename* is a name without folders."""
    plain = Path(filename).name == filename
    return plain and filename not in ("", "..") and not _NO_NAME.search(filename)
