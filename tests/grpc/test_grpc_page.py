"""What docs/grpc.md says is true."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "grpc.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PYTHON = [block for language, block in BLOCKS if language == "python"]
SAID = ["(1, 10)\n", "0\n1\n2\n", "True\n", "True\n"]


def test_the_python_runs(tmp_path: Path) -> None:
    """Each block of Python runs as it is written, and prints what it is to show."""
    (tmp_path / "sample_models").symlink_to(ROOT / "sample_models")
    each = "import sys\nfor code in sys.argv[1:]: exec(code, {'__name__': code}); print('ran')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", each, *PYTHON],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "".join(f"{said}ran\n" for said in SAID)), (
        done.stderr
    )


def test_the_command_runs() -> None:
    """The command serves; only its ports are others here."""
    ((_, block),) = [each for each in BLOCKS if each[0] == "sh"]
    program, *arguments = shlex.split(block.replace("8001", "0"))
    assert program == "workbench"
    command = [sys.executable, "-m", "workbench", *arguments, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert re.search(r" and gRPC at 127\.0\.0\.1:\d+ ", process.stdout.readline())
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_it_is_short() -> None:
    """The page has at most 500 words, its code aside."""
    prose = re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 500
