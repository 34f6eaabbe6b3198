"""Prepare a model, in a process of its own: ``python -m workbench.backends.prepare``.

It takes as much memory again as the model, and seconds of a processor, which the
kernel that serves it is to keep. So it runs beside it, at the lowest priority.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from workbench.backends import onnx
from workbench.backends.onnx_file import read_onnx_file
from workbench.backends.prepared import (
    content_key,
    disk_nbytes,
    file_key,
    is_whole,
    make_room,
    write_entry,
    write_known,
)
from workbench.errors import WorkbenchError


def main(model: str, cache: str, limit_nbytes: str, runtime: str) -> None:
    """Prepare the ONNX file *model* into the folder *cache*; say what that took, as JSON."""
    if hasattr(os, "nice"):
        os.nice(19)
    began_s = time.perf_counter()
    file, folder = read_onnx_file(Path(model)), Path(cache)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key, content = file_key(file, runtime), content_key(file, runtime)
    nbytes = 0
    if not is_whole(folder / "entries" / content):
        refusal = make_room(folder, disk_nbytes(file), int(limit_nbytes), time.time())
        if refusal:
            sys.exit(refusal)
        nbytes = write_entry(folder, content, partial(onnx.write_prepared, file))
    if file_key(file, runtime) != key:
        sys.exit("the file changed meanwhile")
    write_known(folder, key, content)
    told = {"nbytes": nbytes, "seconds": time.perf_counter() - began_s}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WorkbenchError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename!r}")
