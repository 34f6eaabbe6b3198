"""What docs/serve.md says is true."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text("utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
NEEDED = {"Replace": "Functions", "Save": "scikit-learn"}  # the sections that others go on from
LIBRARIES = ("pandas", "skl2onnx", "sklearn", "torch", "xgboost")


def blocks(section: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def in_order(section: str) -> list[str]:
    """The blocks of *section*, after the page's first ones and those that it goes on from."""
    needed = NEEDED.get(section.split(maxsplit=1)[0], "-")
    before = [each for each in SECTIONS[1:] if each.startswith(needed)]
    return [block for each in (SECTIONS[0], *before, section) for block in blocks(each)]


@pytest.mark.filterwarnings("ignore:mood as ONNX differs:UserWarning")
@pytest.mark.parametrize("section", SECTIONS[1:], ids=lambda text: text.partition("\n")[0])
def test_its_blocks_run(
    section: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of each section run as they are written, and print what it shows."""
    monkeypatch.chdir(tmp_path)
    code = in_order(section)
    for library in LIBRARIES:
        if any(f"import {library}" in block or f"from {library}" in block for block in code):
            pytest.importorskip(library, reason=f"{library} is not in this environment")
    names: dict[str, Any] = {}
    try:
        for block in code:
            exec(compile(block, "docs/serve.md", "exec", dont_inherit=True), names)
    finally:
        names["wb"].stop()
    printed = re.sub(r"[\d.]+e-\d+", "_", capsys.readouterr().out)
    for shown in re.findall(r"^```text\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        assert re.sub(r"[\d.]+e-\d+", "_", shown) in printed
