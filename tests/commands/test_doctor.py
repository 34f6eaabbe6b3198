"""What ``doctor`` finds, each with its cure."""

import socket
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.commands import doctor
from workbench.commands.cli import main
from workbench.commands.doctor import Finding, Findings, examine
from workbench.memory.device import Device, GpuAbsence


def versions(**packages: str) -> Any:
    """What is installed; an underscore in a name stands for a dash."""
    return {name.replace("_", "-"): version for name, version in packages.items()}.get


def cures(findings: Any) -> list[str]:
    return [each.cure for each in findings if each.cure]


class FakeGpus:
    def __init__(self, found: Any, driver: str | None = None) -> None:
        self.find = lambda _: found
        self.driver_version = lambda: driver


CARD = (Device("cuda", 0, "H200", 140 * 2**30),)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subject is there, and each finding is one line, as is its cure."""
    findings = examine()
    subjects = {each.subject for each in findings}
    expected = {"workbench", "machine", "ONNX Runtime", "GPU", "telemetry", "port 8000", "kernel"}
    assert expected <= subjects
    assert all("\n" not in each.found + each.cure for each in findings)


@pytest.mark.parametrize(
    ("packages", "cure"),
    [
        ({"onnxruntime_gpu": "1.31"}, []),
        ({"onnxruntime_gpu": "1.31", "onnxruntime": "1.30"},
         ["pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"]),
        ({}, ["pip install onnxruntime-gpu"]),
    ],
)  # fmt: skip
def test_one_onnx_runtime(packages: dict[str, str], cure: list[str]) -> None:
    """Two packages of ONNX Runtime overwrite each other; without one nothing runs."""
    assert cures(doctor.engine(versions(**packages))) == cure


@pytest.mark.parametrize(
    ("version", "trap", "cure"),
    [
        ("6.29.5", "buttons wait until the running cell ends", False),
        ("6.28.0", "older than what is tested", True),
        ("7.0.1", "leaves cells and clicks waiting", True),
        ("7.3.0", "leaves cells and clicks waiting", True),
        ("7.4.0", "ipykernel 7.4.0", False),
    ],
)
def test_kernels_and_their_traps(version: str, trap: str, cure: bool) -> None:
    """What is known of a kernel's version is told."""
    found, _ = doctor.notebook(None, versions(ipykernel=version, ipywidgets="8.1.5"))
    assert trap in found.found
    assert bool(found.cure) == cure


def test_old_widgets() -> None:
    """Widgets that are too old have a cure."""
    assert cures(doctor.notebook(None, versions(ipykernel="7.4", ipywidgets="7.8"))) == [
        "pip install 'ipywidgets>=8.1'"
    ]


def test_the_parser_of_json() -> None:
    """It says which parser reads JSON, and how to get the faster one."""
    (found,) = doctor.json(versions(pysimdjson="7.0.2"))
    assert found == doctor.Finding("JSON", "is read by simdjson 7.0.2")
    (cure,) = cures(doctor.json(versions()))
    assert cure.startswith("pip install pysimdjson")


def test_no_gpu_is_no_fault() -> None:
    """Without a driver models run on the CPU, and there is nothing to mend."""
    (found,) = doctor.nvidia(FakeGpus(GpuAbsence.NO_DRIVER), versions())
    assert found.found == "no NVIDIA driver was found: models run on the CPU"
    assert found.cure == ""


def test_a_hidden_gpu() -> None:
    """A GPU that is there and not used has a cure."""
    findings = list(doctor.nvidia(FakeGpus(GpuAbsence.HIDDEN, "580.1"), versions()))
    assert cures(findings) == ["unset it and restart the kernel"]


def test_an_old_driver_and_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver must be new enough for CUDA 13, and its libraries be there."""
    monkeypatch.setattr(
        "workbench.commands.doctor.runtime.find_cuda", lambda: doctor.runtime.LIBRARIES_MISSING
    )
    packages = versions(onnxruntime_gpu="1.31", pynvml="12.0")
    told = cures(doctor.nvidia(FakeGpus(CARD, "535.104.05"), packages))
    assert told[0] == "install a driver of 580 or newer, which CUDA 13 needs"
    assert told[1].startswith("pip install 'serving-workbench[gpu]'")
    assert told[2].startswith("pip uninstall -y pynvml")


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has a usual port is told, and how to take another: that is no fault."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "_PORTS", {port: "HTTP"})
        (found,) = doctor.ports()
    assert found.found.startswith(f"port {port} is taken by this very process: choose")
    assert not found.cure


def test_a_proxy_in_between() -> None:
    """A proxy for this very machine leads clients astray."""
    assert cures(doctor.proxies({"HTTP_PROXY": "http://p"})) == [
        "export NO_PROXY=127.0.0.1,localhost"
    ]
    assert cures(doctor.proxies({"HTTP_PROXY": "http://p", "NO_PROXY": "127.0.0.1"})) == []


def test_telemetry() -> None:
    """ONNX Runtime's is off unless a variable switches it on."""
    assert cures(doctor.telemetry({})) == []
    assert cures(doctor.telemetry({"ORT_DISABLE_TELEMETRY": "0"})) == [
        "unset ORT_DISABLE_TELEMETRY and restart the kernel"
    ]


def test_shown() -> None:
    """A cure stands below its finding; names are escaped in HTML."""
    findings = Findings([Finding("a", "good"), Finding("b", "<bad>", "do this")])
    assert repr(findings).splitlines() == [
        "  a  good",
        "! b  <bad>",
        "     -> do this",
        "1 to mend",
    ]
    assert "&lt;bad&gt;" in findings._repr_html_()
    assert repr(Findings()) == "nothing to mend"


def test_on_the_command_line() -> None:
    """``workbench doctor`` prints the findings, and ends with status 1 if there is one to mend."""
    done = CliRunner().invoke(main, ["doctor"])
    assert "ONNX Runtime" in done.output
    assert done.exit_code == ("to mend" in done.output and "nothing to mend" not in done.output)
