"""Programs that a test has run in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def ran(*command: str | Path, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
    """What came of *command*, which ends well where that is to be *check*ed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, **more)
    assert done.returncode == 0 or not check, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def python(
    code: str, *arguments: str | Path, check: bool = True, **environ: str
) -> subprocess.CompletedProcess[str]:
    """What came of *code* in a Python that imports what this one does."""
    found = {**os.environ, "PYTHONPATH": ":".join(sys.path), **environ}
    return ran(sys.executable, "-c", code, *arguments, check=check, env=found)
