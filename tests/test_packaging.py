"""pyproject.toml, environment.yml, constraints.txt and the Makefile agree with each other."""

import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any

import pytest
import rattler
import yaml
from other_process import ran
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import workbench

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
MATCH_SPECS = [line for line in ENVIRONMENT["dependencies"] if isinstance(line, str)]
(PIP_LINES,) = [line["pip"] for line in ENVIRONMENT["dependencies"] if isinstance(line, dict)]
CONDA_NAMES = {"matplotlib-base": "matplotlib"}


def requirements(extra: str | None = None) -> dict[str, list[Requirement]]:
    lines = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    found: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, lines):
        found.setdefault(requirement.name, []).append(requirement)
    return found


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pins}


@pytest.mark.parametrize("line", MATCH_SPECS)
def test_conda_reads_the_line(line: str) -> None:
    """Conda's own grammar, strictly, reads every line of environment.yml."""
    assert rattler.MatchSpec(line, strict=True).name is not None


@pytest.mark.parametrize("line", MATCH_SPECS)
def test_conda_asks_for_what_pip_asks_for(line: str) -> None:
    """A line of environment.yml has the bounds that pyproject.toml has."""
    name, _, bounds = line.partition(" ")
    if name == "pip":
        return
    if name == "python":
        assert bounds.startswith(PROJECT["requires-python"])
        return
    wanted = {**requirements("lab"), **requirements()}[CONDA_NAMES.get(name, name)]
    assert [set(bounds.split(","))] == [{str(s) for s in r.specifier} for r in wanted]


def test_conda_brings_simdjson() -> None:
    """It does for Python 3.14, which conda chooses, and of which pip has no simdjson."""
    (wanted,) = requirements()["pysimdjson"]
    assert wanted.marker is not None
    assert not wanted.marker.evaluate({"python_version": "3.14"})
    assert f"pysimdjson {wanted.specifier}" in MATCH_SPECS


def test_both_environments_are_alike() -> None:
    """The environment for the CPU lacks the CUDA libraries, and nothing else."""
    cpu = yaml.safe_load((ROOT / "environment-cpu.yml").read_text("utf-8"))
    cpu["dependencies"][-1]["pip"] = PIP_LINES
    assert cpu == ENVIRONMENT


def test_conda_installs_the_project_with_pip() -> None:
    """The pip section installs this folder with extras that exist, and nothing by other names."""
    (line,) = PIP_LINES
    match = re.fullmatch(r"-e \.\[([a-z,]+)\]", line)
    assert match is not None
    assert set(match[1].split(",")) <= set(PROJECT["optional-dependencies"])
    assert ENVIRONMENT["channels"] == ["conda-forge"]


@pytest.mark.parametrize(
    ("platform", "name"),
    [("linux", "onnxruntime-gpu"), ("win32", "onnxruntime-gpu"), ("darwin", "onnxruntime")],
)
def test_one_onnx_runtime(platform: str, name: str) -> None:
    """Each system gets exactly one distribution of ONNX Runtime."""
    environment = {"sys_platform": platform, "platform_python_implementation": "CPython"}
    chosen = [
        requirement.name
        for found in requirements().values()
        for requirement in found
        if requirement.name.startswith("onnxruntime")
        and requirement.marker is not None
        and requirement.marker.evaluate(environment)
    ]
    assert chosen == [name]


def test_nvml_comes_from_its_owner() -> None:
    """The module pynvml comes from nvidia-ml-py, never from the abandoned package pynvml."""
    everything = requirements() | requirements("test") | requirements("gpu")
    assert "nvidia-ml-py" in everything
    assert "pynvml" not in everything
    assert "pynvml" not in pinned()


@pytest.mark.parametrize("extra", [None, "gpu", "grpc", "images", "test", "lab", "samples"])
def test_constraints_keep_the_bounds(extra: str | None) -> None:
    """The versions that the tests ran with are within the bounds; what they install has one."""
    pins = pinned()
    for name, found in requirements(extra).items():
        version = pins.get(name.lower())
        for requirement in found:
            if version is not None:
                assert requirement.specifier.contains(version, prereleases=True), requirement
            elif extra not in ("gpu", "grpc") and name != "serving-workbench":
                assert requirement.marker is not None, name
                assert not requirement.marker.evaluate(), name


def test_what_is_pinned_runs_on_the_oldest_python() -> None:
    """No pin asks for a later Python than the project does: that of Debian 12 is 3.11.2."""
    (declared,) = SpecifierSet(PROJECT["requires-python"])
    oldest = f"{declared.version}.0"
    for name in pinned():
        with suppress(PackageNotFoundError):  # of an extra that is not installed
            needed = metadata(name).get("Requires-Python", "")
            assert SpecifierSet(needed).contains(oldest), f"{name} needs Python {needed}"


def test_every_dependency_says_what_for() -> None:
    """Each requirement in pyproject.toml has a comment, tools of the tests excepted."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    section = text[text.index("dependencies = [") : text.index("test = [")]
    lines = [line for line in section.splitlines() if line.startswith('  "')]
    assert [line for line in lines if "#" not in line] == []


def test_version_is_one() -> None:
    """The installed version is the package's, and the newest in the changelog."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert Version(workbench.__version__)
    assert requires("serving-workbench")


def test_no_registry_hosts() -> None:
    """No file names the host of a package registry."""
    files = ran("git", "ls-files", cwd=ROOT).stdout.split()
    hosts = re.compile(rb"pypi\.org|pythonhosted|registry\.npmjs|anaconda\.(org|com)")
    named: list[Any] = [
        name
        for name in files
        if name != "tests/test_packaging.py" and hosts.search((ROOT / name).read_bytes())
    ]
    assert named == []
