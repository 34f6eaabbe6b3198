"""Prepare a model, in a process of its own: ``python -m workbench.backends.onnx_tiers.prepare``."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from workbench.backends.onnx.header.file import read_onnx_file
from workbench.backends.onnx_tiers.folder import PreparedFolder, content_key, file_key
from workbench.backends.onnx_tiers.write import write_prepared
from workbench.errors import LoadFailed, WorkbenchError


def main(model: str, folder: PreparedFolder, version: str) -> None:
    """Prepare the ONNX file *model* into *folder*; print its size and the time, as JSON.

    *version* is that of ONNX Runtime. Raises ``LoadFailed`` and ``OSError``.
    """
    began_s = time.perf_counter()
    file = read_onnx_file(Path(model))
    folder.create()
    key, content = file_key(file, version), content_key(file, version)

    def check_unchanged() -> None:  # otherwise files of two models would be mixed
        if file_key(file, version) != key:
            raise LoadFailed("the file changed meanwhile")

    def fill(part: Path) -> None:
        write_prepared(file, part)
        check_unchanged()

    check_unchanged()
    nbytes = 0
    if not folder.has(content):
        refusal = folder.make_room(file, time.time())
        if refusal:
            sys.exit(refusal)
        nbytes = folder.write(content, fill)
    folder.note(key, content)
    figures = {"nbytes": nbytes, "seconds": time.perf_counter() - began_s}
    sys.stdout.write(f"\n{json.dumps(figures)}\n")  # libraries may have printed other lines before


def give_way() -> None:
    """Give this process the lowest priority; if memory runs out, it is ended first."""
    if hasattr(os, "nice"):
        os.nice(19)
    with suppress(OSError):  # only Linux has this file
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


if __name__ == "__main__":
    give_way()
    try:
        path, limit, writer = sys.argv[2:5]
        main(sys.argv[1], PreparedFolder(Path(path), int(limit), writer), sys.argv[5])
    except WorkbenchError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.strerror}: {str(error.filename or path)!r}")  # a full disk names no file
