"""Measures what an installation takes on disk: the package with what it needs, and each extra.

python benchmarks/install_size.py [EXTRA ...]    # all extras that users choose, unless named
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("grpc", "client", "sklearn", "boost", "samples", "lab", "torch", "gpu")


def nbytes(folder: Path) -> int:
    """What the files below *folder* hold, those counted that pip writes and compiles."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def pip(python: Path, *arguments: str) -> str:
    """What pip prints, run by *python* with the versions of constraints.txt."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    constraint = ("--constraint", str(ROOT / "constraints.txt"))
    return subprocess.run(
        [*command, *constraint], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def added(python: Path, extra: str, out: Path) -> tuple[int, int]:
    """The bytes of the packages that *extra* adds to an installation, and how many they are."""
    wanted = f"{ROOT}[{extra}]"
    report = json.loads(pip(python, "install", "--dry-run", "--report", "-", wanted))
    packages = [
        f"{each['metadata']['name']}=={each['metadata']['version']}"
        for each in report["install"]
        if each["metadata"]["name"] != "serving-workbench"
    ]
    if packages:
        pip(python, "install", "--no-deps", "--target", str(out), *packages)
    return nbytes(out), len(packages)


def main() -> None:
    """Print a row for the package alone, and for each extra."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        python = home / "venv" / "bin" / "python"
        (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
        before = nbytes(packages)
        pip(python, "install", str(ROOT))
        print(f"no extra: {(nbytes(packages) - before) / 1e6:.0f} MB", flush=True)
        for extra in sys.argv[1:] or EXTRAS:
            total, count = added(python, extra, home / extra)
            print(f"{extra}: {total / 1e6:.0f} MB more, {count} packages", flush=True)


if __name__ == "__main__":
    main()
