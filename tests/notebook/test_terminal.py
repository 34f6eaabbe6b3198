"""Front ends without HTML."""

import subprocess
import sys
from pathlib import Path

CELLS = """
%load_ext workbench
wb = %workbench start sample_models --budget 64MiB
wb
wb.load("wine")
wb.models
%workbench
%workbench load nobody
%workbench stop
exit
"""


def test_plain_ipython(sample_models: Path, tmp_path: Path) -> None:
    """In a terminal everything is text, a mistake is one line, and nothing fails."""
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=NoColor",
         "--simple-prompt", f"--ipython-dir={tmp_path}"],
        input=CELLS, cwd=sample_models.parent, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr
    assert "workbench http://127.0.0.1:" in done.stdout
    assert "wine         1  ready" in done.stdout
    assert "there is no model 'nobody'; available: diabetes" in done.stdout + done.stderr
    assert "stopped" in done.stdout
