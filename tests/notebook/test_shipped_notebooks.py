"""The notebooks that are shipped: they run, and what is committed shows without a kernel."""

import re
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import bleach
import pytest
from headless import code, run, shipped, text

from workbench import Workbench

ROOT = Path(__file__).parents[2]
ALL = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in ALL]
RUN_HERE = (
    "bench", "clients", "eviction_and_planner", "gpu_memory", "pytorch", "scikit_learn", "text"
)  # fmt: skip
NEEDS = {"pytorch": "torch", "scikit_learn": "sklearn", "text": "sklearn"}
SHORTER = {r"(?<=seconds[= ])0\.2\b": "0.02", r"(?<=choice\(6, )120\b": "40"}
"""How long the notebook about speed measures each load, and how many requests the one about
evictions makes: fewer show the same."""
STYLE, TAG = re.compile(r"<style\b.*?</style>", re.DOTALL), re.compile(r"<[^>]*>")
PICTURE = re.compile('<img [^>]*src="data:image/png;base64,')
KEPT = {"a", "b", "br", "code", "details", "div", "i", "img", "li", "p", "pre", "small", "span",
        "strong", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul"}  # fmt: skip
KEPT_ATTRIBUTES = {"a": ["href"], "img": ["src", "alt", "width", "height"], "details": ["open"]}
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"


@pytest.fixture(scope="module", params=RUN_HERE)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The name of a notebook, and its cells as a kernel ran them from top to bottom."""
    if request.param in NEEDS:
        pytest.importorskip(NEEDS[request.param])
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "notebooks").mkdir()
    (folder / "sample_models").symlink_to(ROOT / "sample_models")
    notebook = shipped(request.param)
    for cell, (long, short) in product(code(notebook), SHORTER.items()):
        cell.source = re.sub(long, short, cell.source)
    return request.param, run(notebook, folder / "notebooks")


SHOWN = {
    "bench": (r"answers up to [\d,]+ elements a second \(8 clients\)", r"8 +8 clients"),
    "clients": (r"array\(\[2, 0, 4, 9, 4\]\), array\(\[2, 0, 4, 9, 4\]\)", r"\('wine', 'READY'\)"),
    "eviction_and_planner": (r"to make room for heavy_\d", r"MiB would make 95 % of these"),
    "gpu_memory": (r"ONNX Runtime +onnxruntime", r"to fit the budget of 512.0 KiB"),
    "pytorch": (r"blend: a copy of .* of Blend, by forward", r"to make room for wide_1"),
    "scikit_learn": (
        r"grapes: a copy of .* of Pipeline, by predict and predict_proba",
        r"'name': 'label'",
    ),
    "text": (r"'label': array\(\['good', 'bad'\]", r"OVER THE WIRE"),
}


def test_runs_headless(ran: Any) -> None:
    """Each runs without an error or a warning, shows what it is about, and stops its server."""
    name, cells = ran
    told = "\n".join(map(text, cells))
    for pattern in SHOWN[name]:
        assert re.search(pattern, told), pattern
    assert text(cells[-1]) == "stopped\n"


@pytest.mark.parametrize("name", NAMES)
def test_ends_with_stop(name: str) -> None:
    """The last cell of each stops the server."""
    assert code(shipped(name))[-1].source == "%workbench stop"


@pytest.mark.parametrize("name", RUN_HERE)
def test_says_what_it_needs(name: str) -> None:
    """The first cell says what is to be installed, and whether a GPU is needed."""
    first = shipped(name).cells[0].source
    assert "Needs: `pip install" in first
    assert "GPU" in first


@pytest.mark.parametrize("name", NAMES)
def test_is_read_without_a_kernel(name: str) -> None:
    """What is committed has its outputs as text or pictures: no widget, no path of a machine."""
    cells = code(shipped(name))
    assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2
    outputs = [each for cell in cells for each in cell.outputs]
    for each in outputs:
        kinds = set(each.get("data", {"text/plain": ""}))
        assert "text/plain" in kinds
        assert not any("widget" in kind for kind in kinds)
    assert not re.search(r"/(home|root|work|tmp|Users)/", str(outputs))


@pytest.mark.parametrize("name", NAMES)
def test_is_read_where_styles_and_drawings_are_taken_out(name: str) -> None:
    """Of what a site's allow list leaves, each drawing is a picture, and no style is read as text.

    The elements that GitHub's own list leaves, by github.com/gjtorikian/html-pipeline.
    """
    html = [each.data["text/html"] for cell in code(shipped(name)) for each in cell.outputs
            if "text/html" in each.get("data", {})]  # fmt: skip
    for whole in html:
        left = bleach.clean(
            STYLE.sub("", whole), KEPT, KEPT_ATTRIBUTES, ["data", "http"], strip=True
        )
        assert len(PICTURE.findall(left)) == whole.count("<svg")
        text_left = TAG.sub("", left)
        assert text_left.strip()
        assert not re.search(r"font-size|!important|:root", text_left)


def test_the_part_for_kserve(sample_models: Path) -> None:
    """What the notebook about clients asks by KServe's client is answered."""
    if not CLIENTS.exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    (source,) = [c.source for c in code(shipped("clients")) if "def ask_by_kserve" in c.source]
    with Workbench(sample_models, device="cpu") as wb:
        headers = {"Authorization": f"Bearer {wb.token}"} if wb.token else {}
        script = "\n".join(
            [
                "import ast, asyncio, numpy as np",
                f"headers = {headers!r}",
                f"class wb: url = {wb.url!r}",
                source.partition("\n\n\ntry:")[0],
                "async def ask(): return await ask_by_kserve(np.zeros((3, 13), np.float32))",
                "print([output.shape for output in asyncio.run(ask()).outputs])",
            ]
        )
        done = subprocess.run([CLIENTS, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[[3, 3]]\n", done.stderr
