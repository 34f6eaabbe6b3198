"""Prepare a model, in a process of its own: ``python -m workbench.backends.onnx_tiers.prepare``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from workbench.backends.onnx import runtime as onnx
from workbench.backends.onnx.header import OnnxFile, read_onnx_file
from workbench.backends.onnx_tiers.folder import PreparedFolder, content_key, file_key
from workbench.errors import LoadFailed, WorkbenchError

_WRITE = {"fp32": onnx.write_prepared, "fp16": onnx.write_fp16}


def main(model: str, folder: PreparedFolder, runtime: str, precision: str) -> None:
    """Prepare the ONNX file *model* into *folder*; say what that took, as JSON.

    In another *precision* than its own it is converted, and that is all.
    """
    began_s = time.perf_counter()
    file = read_onnx_file(Path(model))
    folder.create()
    key = file_key(file, runtime, precision)
    content = content_key(file, runtime, precision)
    check_unchanged = partial(_check_unchanged, file, runtime, precision, key)
    check_unchanged()
    nbytes = 0
    if not folder.has(content):
        refusal = folder.make_room(file, time.time())
        if refusal:
            sys.exit(refusal)
        nbytes = folder.write(content, partial(_fill, file, _WRITE[precision], check_unchanged))
    folder.note(key, content)
    told = {"nbytes": nbytes, "seconds": time.perf_counter() - began_s}
    sys.stdout.write(f"\n{json.dumps(told)}\n")  # others may have written before


def _fill(
    file: OnnxFile,
    write: Callable[[OnnxFile, Path], None],
    check_unchanged: Callable[[], None],
    part: Path,
) -> None:
    write(file, part)
    check_unchanged()


def _check_unchanged(file: OnnxFile, runtime: str, precision: str, key: str) -> None:
    if (
        file_key(file, runtime, precision) != key
    ):  # what was read, and then loaded, may be two models
        raise LoadFailed("the file changed meanwhile")


def give_way() -> None:
    """Let every other process go first, and go first where memory runs out."""
    if hasattr(os, "nice"):
        os.nice(19)
    with suppress(OSError):  # not everywhere is Linux
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


if __name__ == "__main__":
    give_way()
    try:
        path, limit, writer = sys.argv[2:5]
        main(sys.argv[1], PreparedFolder(Path(path), int(limit), writer), *sys.argv[5:])
    except WorkbenchError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename!r}")
