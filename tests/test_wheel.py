"""The wheel, installed: it brings what the commands need, in any folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes, policy
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from other_process import ran

ROOT = Path(__file__).parent.parent
_spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
assert _spec is not None
assert _spec.loader is not None
hatch_build = module_from_spec(_spec)
_spec.loader.exec_module(hatch_build)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def built(tree: Path, out: Path) -> Path:
    """The wheel of *tree*, in *out*."""
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    ran(sys.executable, "-m", *command, out, tree)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel, which sees the packages of this one."""
    home = tmp_path_factory.mktemp("installed")
    ran(sys.executable, "-m", "venv", "--without-pip", home)
    scripts = Path(sysconfig.get_path("scripts", "venv", {"base": str(home)}))
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
    ours = sysconfig.get_path("purelib")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    python = scripts / "python"
    install = ["--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    ran(sys.executable, "-m", "pip", *install)
    return scripts


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_sample_models_are_in_it(wheel: Path) -> None:
    """All that is served or read of sample_models and notebooks; the scripts that made it are not.

    There is no second copy in the tree.
    """
    files = set(zipfile.ZipFile(wheel).namelist())
    tracked = ran("git", "ls-files", "sample_models", "notebooks", cwd=ROOT).stdout.split()
    wanted = {f"workbench/bundled_files/{name}" for name in tracked if not name.endswith(".py")}
    assert {name for name in files if "/bundled_files/" in name} == wanted
    assert not (ROOT / "workbench" / "bundled_files").exists()


def test_an_image_is_built_from_all_of_it(wheel: Path, tmp_path: Path) -> None:
    """What .dockerignore lets into an image makes the same wheel as the whole tree."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in lines
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for name in sent:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    files = set(zipfile.ZipFile(wheel).namelist())
    assert set(zipfile.ZipFile(built(tmp_path, tmp_path / "out")).namelist()) == files


def test_the_index_page(wheel: Path) -> None:
    """It has an author, the README, and no link that leads nowhere there."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        page = message_from_bytes(archive.read(name), policy=policy.default)
    text = page.get_content() if page.get_content_type() == "text/markdown" else page.get_payload()
    assert "A model server inside your notebook" in text
    assert "https://github.com/kserve/open-inference-protocol" in text
    assert hatch_build.FILE_LINK.findall(text) == []
    assert page["Author"]
    assert page["License-Expression"] == "Apache-2.0"
    assert "Programming Language :: Python :: 3.11" in page.get_all("Classifier")


def test_links_of_the_index_page() -> None:
    """Links and pictures lead below the address of the files; without one their words stay."""
    readme = "[a](docs/a.md) ![b](b.png) [c](https://c/) [d](#d)"
    there = "[a](https://x/docs/a.md) ![b](https://x/b.png) [c](https://c/) [d](#d)"
    assert hatch_build.index_readme(readme, "https://x") == there
    assert hatch_build.index_readme(readme, "") == "a  [c](https://c/) [d](#d)"


def test_the_demo_runs_in_an_empty_folder(scripts: Path, tmp_path: Path) -> None:
    """`workbench demo` needs no folder named, and runs the wheel's code, not the tree's."""
    done = ran(scripts / "workbench", "demo", cwd=tmp_path, env=environ())
    assert "digits: 445 of 450 right" in done.stdout
    assert (tmp_path / "build" / "demo" / "memory.png").is_file()
    code = "import workbench; print(workbench.__file__)"
    where = ran(scripts / "python", "-c", code, cwd=tmp_path, env=environ())
    assert str(scripts.parent) in where.stdout


def test_the_lab_opens_the_notebooks(scripts: Path, tmp_path: Path) -> None:
    """`workbench lab` is JupyterLab on a copy of the notebooks; changes of the copy stay."""
    edited = tmp_path / "workbench-lab" / "notebooks" / "ensembles.ipynb"
    edited.parent.mkdir(parents=True)
    edited.write_text("{}")
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    with subprocess.Popen(
        [scripts / "workbench", "lab", *options],
        cwd=tmp_path,
        env={**environ(), "IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as lab:
        assert lab.stderr is not None
        try:
            served = next(line for line in lab.stderr if "Serving notebooks from" in line)
            assert served.split(": ")[-1].strip() == str(edited.parent)
        finally:
            lab.terminate()
            lab.stderr.close()
            lab.wait(30)
    assert edited.read_text() == "{}"
    assert "%load_ext workbench" in edited.with_name("quickstart.ipynb").read_text("utf-8")
    digits = tmp_path / "workbench-lab" / "sample_models" / "digits" / "1" / "model.onnx"
    assert digits.is_file()


def test_a_lack_of_jupyterlab_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without JupyterLab the command says how to install it, and copies nothing."""
    from click.testing import CliRunner

    from workbench.commands.cli import main

    monkeypatch.setattr("workbench.commands.bundled.find_spec", lambda name: None)
    told = CliRunner().invoke(main, ["lab", "--out", str(tmp_path / "out")])
    assert told.exit_code == 2
    assert 'pip install "serving-workbench[lab]"' in told.output
    assert not (tmp_path / "out").exists()
