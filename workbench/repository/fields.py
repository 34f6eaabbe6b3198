"""What fields of Triton's configuration mean that stand in several of its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.tensor import DATATYPES


def datatype_of(message: Any) -> str | None:
    """The V2 datatype that *message* has as its ``data_type``; ``None`` if it has none."""
    known = message.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    value = known.get(message.data_type)  # any number parses
    datatype = value.name.removeprefix("TYPE_") if value else ""
    datatype = "BYTES" if datatype == "STRING" else datatype
    return datatype if datatype in DATATYPES else None


def is_plain(filename: str) -> bool:
    """Whether *filename* names a file of the folder that it is looked for in, and no other."""
    plain = Path(filename).name == filename
    return plain and filename not in ("", "..") and "\0" not in filename
