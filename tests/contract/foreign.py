"""Clients that run in environments of their own."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PYTHON = HERE.parent.parent / ".venv-clients" / "bin" / "python"


class Foreign:
    """A client in a process of another environment: asks with one line of JSON, reads one back."""

    def __init__(self, script: str, python: Path = PYTHON, made_by: str = "clients") -> None:
        if not python.exists():
            pytest.skip(f"there is no {python.parents[1].name}: make {made_by} makes it")
        self.process = subprocess.Popen(
            [python, HERE / "scripts" / script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        """What *method* answered or raised, see ``scripts/talk.py``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, arguments]) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        assert isinstance(told, dict)
        return told

    def __call__(self, method: str, **arguments: Any) -> Any:
        """What *method* answered; it must not have raised."""
        told = self.ask(method, **arguments)
        assert "raised" not in told, told
        return told["answer"]

    def close(self) -> None:
        """End the process: it has answered all that it was asked."""
        self.process.terminate()
        self.process.communicate(timeout=60)
