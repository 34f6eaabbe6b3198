"""Packing model.tar.gz, and finding out whether it would deploy."""

import errno
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx_models import identity, scaled, written

from workbench import Workbench
from workbench.annexes.sagemaker.checking import ArtifactFinding, check
from workbench.annexes.sagemaker.packing import pack
from workbench.commands.cli import main
from workbench.errors import LoadFailed, UsageError, WorkbenchError
from workbench.nbytes import parse_nbytes

HOOKS = "def model_fn(folder): return 2\ndef predict_fn(data, model): return data * model\n"


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def findings(archive: Path, **options: bool) -> dict[str, ArtifactFinding]:
    return {finding.topic: finding for finding in check(archive, **options)}


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.tar.gz"


def test_an_onnx_file(sample_models: Path, out: Path) -> None:
    """An ONNX file becomes version 1, and would deploy; equal models make equal archives."""
    file = sample_models / "wine" / "1" / "model.onnx"
    pack(file, out)
    before = out.read_bytes()
    pack(file, out)
    assert out.read_bytes() == before
    assert before[4:8] == bytes(4)  # the time in the head of a gzip file
    assert names(out) == ["1/model.onnx"]
    found = findings(out)
    assert not any(finding.cure for finding in found.values())
    assert {"size", "layout", "load", "example", "memory"} == set(found)
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_by_any_path(
    sample_models: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may be named by a relative path, also through the folder above."""
    monkeypatch.chdir(sample_models / "wine")
    pack(Path("..", "diabetes"), out)
    assert "1/model.onnx" in names(out)
    pack(Path(), out)
    assert "1/model.onnx" in names(out)


def test_a_folder_that_holds_its_own_archive(sample_models: Path, tmp_path: Path) -> None:
    """What was packed into the folder of the model before is no part of it, by any name."""
    folder = Path(shutil.copytree(sample_models / "wine", tmp_path / "wine"))
    for name in ("wine.tar.gz", "wine.tar.gz", "v2.tgz", "v3.tar.gz"):
        pack(folder, folder / name)
        assert names(folder / name) == ["1/model.onnx", "config.pbtxt", "labels.txt"]


def test_archives_of_the_code_come_along(tmp_path: Path, out: Path) -> None:
    """Those below the folder are what its code reads."""
    (tmp_path / "m" / "code").mkdir(parents=True)
    (tmp_path / "m" / "code" / "inference.py").write_text(HOOKS)
    (tmp_path / "m" / "code" / "words.tar.gz").write_bytes(b"")
    pack(tmp_path / "m", out)
    assert names(out) == ["code/inference.py", "code/words.tar.gz"]


def test_a_folder_that_cannot_be_written(
    sample_models: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file that was asked for, not the one that it is written as at first."""
    opened = Path.open

    def refuse(path: Path, mode: str = "r", **more: Any) -> Any:  # as root may write everywhere
        if mode == "wb":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, mode, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsageError, match=f"^{re.escape(str(out))}: Permission denied$"):
        pack(sample_models / "wine", out)


def test_weights_beside_the_file_come_along(tmp_path: Path, out: Path) -> None:
    """Weights in other files are packed with an ONNX file, which loads from the archive."""
    file = tmp_path / "m.onnx"
    write_external(file)
    pack(file, out)
    assert names(out) == ["1/model.onnx", "1/weights.bin"]
    assert findings(out)["load"].text == "it loads"


def write_external(file: Path) -> None:
    """A model whose weights are in another file."""
    scaled(file, 2)
    place = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load(file), file, **place)


def test_a_served_model(sample_models: Path, tmp_path: Path, out: Path) -> None:
    """The folder of a served model is packed as it is, less hidden files and Python's."""
    folder = Path(shutil.copytree(sample_models / "wine", tmp_path / "wine"))
    for name in (".git/head", "__pycache__/x.pyc", "__MACOSX/x", "1/.DS_Store"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    pack(folder, out)
    assert names(out) == ["1/model.onnx", "config.pbtxt", "labels.txt"]
    assert not findings(out)["example"].cure


def test_an_ensemble_comes_with_its_parts(sample_models: Path, out: Path) -> None:
    """An ensemble is packed with the models of its steps, and would deploy."""
    pack(sample_models / "digits_reader", out)
    folders = {name.partition("/")[0] for name in names(out)}
    assert folders == {"digits_reader", "digits_pixels", "digits_conv", "digits_label"}
    assert findings(out)["load"].text == "it loads"


def test_a_function_and_what_it_imports(tmp_path: Path, out: Path) -> None:
    """A function is packed with the modules beside it that it imports, and answers its example."""
    (tmp_path / "f.py").write_text("import one, json\ndef double(x): return one.twice(x)\n")
    (tmp_path / "one.py").write_text("import two\ndef twice(x): return x * two.TWO\n")
    (tmp_path / "two.py").write_text("TWO = 2\n")
    (tmp_path / "other.py").write_text("")
    example = tmp_path / "e.json"
    example.write_text("[[1, 2]]")
    pack(tmp_path / "f.py", out, example=example)
    code = ["code/f.py", "code/inference.py", "code/one.py", "code/two.py"]
    assert names(out) == [*code, "example.json"]
    found = findings(out, run_code=True)
    assert "example.json is answered" in found["example"].text
    assert not found["example"].wrong


def test_code_of_the_toolkits_kind(tmp_path: Path, out: Path) -> None:
    """A file with the toolkit's functions is the code itself; it runs only with leave."""
    script = tmp_path / "mine.py"
    touch = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    script.write_text(touch + HOOKS)
    pack(script, out)
    assert names(out) == ["code/inference.py"]
    assert findings(out)["load"].cure == "add --run-code if you trust it"
    assert not (tmp_path / "ran").exists()
    assert findings(out, run_code=True)["example"].cure
    assert (tmp_path / "ran").exists()


def test_a_model_that_needs_more_memory(tmp_path: Path, out: Path) -> None:
    """A load for which memory is short says nothing against the model."""
    (tmp_path / "mine.py").write_text(HOOKS.replace("return 2", "raise MemoryError", 1))
    pack(tmp_path / "mine.py", out)
    found = findings(out, run_code=True)["load"]
    assert found.cure == "check it on a machine with more memory, and deploy it to one"
    assert found.wrong


def test_what_is_wrong_comes_before_where(tmp_path: Path, out: Path) -> None:
    """A check of code that fails says first what is wrong and the cure; the traceback follows."""
    (tmp_path / "mine.py").write_text(HOOKS.replace("return 2", "raise RuntimeError('no luck')", 1))
    pack(tmp_path / "mine.py", out)
    command = [sys.executable, "-m", "workbench", "pack", "--check", "--run-code", str(out)]
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    told = subprocess.run(command, text=True, check=False, **merged).stdout
    wrong, where = told.index("raised RuntimeError: no luck: mend"), told.index("Traceback")
    assert wrong < where


def test_half_of_the_hooks(tmp_path: Path, out: Path) -> None:
    """A file that loads a model, and has no hook that runs it, is told which one it lacks."""
    (tmp_path / "inference.py").write_text("def model_fn(model_dir):\n    return 2\n")
    with pytest.raises(UsageError, match="but neither predict_fn nor transform_fn: add one"):
        pack(tmp_path / "inference.py", out)


def test_packages_that_nobody_installs(tmp_path: Path, out: Path) -> None:
    """The toolkit installs what an artifact requires; this server's image must have it."""
    code = tmp_path / "mine" / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(HOOKS)
    pack(tmp_path / "mine", out)
    assert "packages" not in findings(out)
    (code / "requirements.txt").write_text("scikit-learn\n")
    pack(tmp_path / "mine", out)
    assert findings(out)["packages"].cure == "install its packages in the server's image"


@pytest.mark.parametrize(
    ("name", "text", "function", "message"),
    [
        ("f.py", "def a(): 0\ndef b(): 0\n", None,
         "2 public functions: name one with --function: a, b"),
        ("f.py", "def _a(): 0\n", None, "0 public functions"),
        ("f.py", "def a(): 0\n", "b", "no function 'b'"),
        ("f.py", "def a(:\n", None, "is not valid Python"),
        ("inference.py", "def a(): 0\n", None, "rename it"),
        ("a-b.py", "def a(): 0\n", None, "rename it"),
        ("f.txt", "", None, "must be an ONNX file"),
        ("f.onnx", "no model", None, "f.onnx"),
        ("f.onnx", "", "a", "is not a Python file"),
    ],
)  # fmt: skip
def test_what_is_not_packed(
    tmp_path: Path, name: str, text: str, function: str | None, message: str
) -> None:
    """What is no model is refused with what is wrong, and nothing is written."""
    out = tmp_path / "out.tar.gz"
    (tmp_path / name).write_text(text)
    with pytest.raises(WorkbenchError, match=message):
        pack(tmp_path / name, out, function=function)
    assert not out.exists()


def test_other_refusals(sample_models: Path, tmp_path: Path, out: Path) -> None:
    """A folder without a model, and an example of no known kind, are refused."""
    with pytest.raises(LoadFailed, match="holds no model"):
        pack(tmp_path, out)
    with pytest.raises(UsageError, match="must be one of"):
        pack(sample_models / "wine", out, example=tmp_path / "e.txt")
    with pytest.raises(UsageError, match="is no file"):
        list(check(out))
    with pytest.raises(UsageError, match=r"e\.json: No such file or directory$"):
        pack(sample_models / "wine", out, example=tmp_path / "e.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("m.zip", "m.tar.gz"),
        ("m", "m.tar.gz"),
        ("m.tar", "m.tar.gz"),
        ("wine-1.2", "wine-1.2.tar.gz"),
    ],
)
def test_a_file_that_no_endpoint_takes(
    sample_models: Path, tmp_path: Path, name: str, instead: str
) -> None:
    """An archive of another ending is not written; the name to write is told."""
    told = f"{tmp_path / name} must end in .tar.gz or .tgz, such as {tmp_path / instead}"
    with pytest.raises(UsageError, match=f"^{re.escape(told)}$"):
        pack(sample_models / "wine", tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    pack(sample_models / "wine", tmp_path / "m.tgz")


def test_archives_that_no_platform_should_unpack(out: Path) -> None:
    """A bad archive is one finding with its cure."""
    (found,) = check(write_tar(out, (member("../x"), b"x")))
    assert (found.topic, found.wrong) == ("archive", True)
    assert found.cure == "write it with workbench pack, or tar -C FOLDER -czf model.tar.gz ."
    assert found.cure not in found.text
    assert "\n" not in str(found)


def test_what_would_not_deploy(sample_models: Path, out: Path) -> None:
    """No model, a model that does not load, and an example that fails are errors with cures."""
    write_tar(out, (member("notes.txt"), b"x"))
    (_, found) = check(out)
    assert str(found) == (
        "error   layout    . holds no model: put in model.onnx, 1/model.onnx or code/inference.py"
    )
    write_tar(out, (member("a.onnx"), b""), (member("b.onnx"), b""))
    (_, found) = check(out)
    assert str(found).endswith(". holds several models, a.onnx, b.onnx: leave one of them")
    write_tar(out, (member("model.onnx"), b"no model"))
    assert findings(out)["load"].wrong
    assert findings(out)["load"].cure == "mend the model, and pack it again"
    wrong = out.with_name("e.json")
    wrong.write_text("{")
    pack(sample_models / "wine", out, example=wrong)
    found = findings(out)["example"]
    assert (found.wrong, "example.json gets " in found.text) == (True, True)
    assert found.cure == "mend one of them"


def test_a_request_of_zeros(tmp_path: Path, out: Path) -> None:
    """Without an example the model is asked by zeros, texts and false; it need not answer."""
    graph = "(string[n] s, bool[2] b, float[n, 3] x) => (string[n] t, bool[2] c, float[n, 3] y)"
    written(tmp_path / "all.onnx", f"{graph} {{ t = Identity(s) c = Identity(b) y = Identity(x) }}")
    pack(tmp_path / "all.onnx", out)
    found = findings(out)["example"]
    assert found.text.startswith("a request of zeros is answered with ")
    assert (found.cure, found.wrong) == ("", False)
    graph = "(string[n] s) => (float[n] y) { y = Cast <to = 1> (s) }"
    written(tmp_path / "numbers.onnx", graph)
    pack(tmp_path / "numbers.onnx", out)
    found = findings(out)["example"]
    assert found.text.startswith("a request of zeros gets ")
    assert found.cure == "pack it with --example, a request that it answers"
    assert not found.wrong


def test_a_wrapping_folder_is_a_warning(sample_models: Path, out: Path) -> None:
    """A folder around the model is served, with a warning that says how to pack it."""
    content = (sample_models / "wine" / "1" / "model.onnx").read_bytes()
    write_tar(out, (member("wine/1/model.onnx"), content), (member("._wine"), b"x"))
    found = list(check(out))
    cures = " ".join(finding.cure for finding in found if finding.topic == "layout")
    assert "tar -C wine -czf" in cures
    assert "COPYFILE_DISABLE=1" in cures
    assert not any(finding.wrong for finding in found)
    assert str(out.parent) not in " ".join(map(str, found))


def test_tritons_layout_is_no_wrapping_folder(sample_models: Path, out: Path) -> None:
    """A model's folder with its config.pbtxt is how Triton has it, alone or beside others."""
    content = (sample_models / "wine" / "1" / "model.onnx").read_bytes()
    write_tar(out, (member("wine/1/model.onnx"), content), (member("wine/config.pbtxt"), b""))
    assert not any(finding.cure for finding in check(out))


def test_memory_of_code_is_measured(tmp_path: Path, out: Path) -> None:
    """What code takes is seen when it runs.

    In a process of its own: what is freed of other tests meanwhile would count as less.
    """
    script = tmp_path / "inference.py"
    for nbytes, least in ((2**26, 2**26 - 2**21), (1, 0)):
        script.write_text(HOOKS.replace("return 2", f"return bytearray(b'x') * {nbytes}", 1))
        pack(script, out)
        command = [sys.executable, "-m", "workbench", "pack", "--check", "--run-code", str(out)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (memory,) = re.findall(r"memory +(\S+) (\S+): ", found)
        assert least <= parse_nbytes("".join(memory)) < least + 2**24


def test_memory_counts_a_run(tmp_path: Path, out: Path) -> None:
    """What a run takes is part of what the model takes, also where its weights are nothing."""
    file, shape = tmp_path / "m.onnx", np.array([2**24], np.int64)
    graph = "(float[n] x) => (float y) { wide = Expand(x, s) y = ReduceSum<keepdims=0>(wide) }"
    pack(written(file, graph, weights={"s": shape}), out)
    told = findings(out)["memory"].text
    assert told.endswith(" in all, a run included")
    assert parse_nbytes(told.partition(" in")[0].replace(" ", "")) > 2**25


def test_the_command(sample_models: Path, tmp_path: Path) -> None:
    """The command packs, and checks: status 0 if it would deploy, 1 if not, 2 for a mistake."""
    out = tmp_path / "m.tar.gz"
    packed = CliRunner().invoke(main, ["pack", str(sample_models / "wine"), "--out", str(out)])
    assert packed.exit_code == 0, packed.output
    assert f"workbench pack --check {out}" in packed.output
    checked = CliRunner().invoke(main, ["pack", "--check", str(out)])
    assert checked.exit_code == 0
    assert "ok      load      it loads" in checked.output.splitlines()
    out.write_bytes(b"")
    assert CliRunner().invoke(main, ["pack", "--check", str(out)]).exit_code == 1
    absent = CliRunner().invoke(main, ["pack", "--check", str(tmp_path / "absent.tar.gz")])
    assert (absent.exit_code, "is no file" in absent.stderr) == (2, True)
    checked = CliRunner().invoke(main, ["pack", str(out)])
    assert (checked.exit_code, "add --check to check it" in checked.stderr) == (2, True)
    nowhere = ["pack", str(sample_models / "wine"), "--out", str(tmp_path / "no" / "m.tar.gz")]
    unwritten = CliRunner().invoke(main, nowhere)
    assert (unwritten.exit_code, "no is no folder: make it first" in unwritten.stderr) == (2, True)
    into = CliRunner().invoke(main, ["pack", str(sample_models / "wine"), "--out", str(tmp_path)])
    assert (into.exit_code, f"such as {tmp_path}/model.tar.gz" in into.stderr) == (2, True)
    refused = CliRunner().invoke(main, ["pack", "nothing"])
    assert (refused.exit_code, "workbench: nothing is not there: name" in refused.stderr) == (
        2,
        True,
    )


@pytest.mark.parametrize("name", ["m", "digits_reader"])
def test_an_archive_is_an_artifact_for_sagemaker(
    tmp_path: Path, sample_models: Path, name: str
) -> None:
    """A path that ends in .tar.gz or .tgz gets what a multi-model endpoint serves."""
    with Workbench(sample_models) as wb:
        wb.serve(identity(tmp_path / "m.onnx"), "m")
        archive = wb.save(name, tmp_path / "s3" / f"{name}.tar.gz")
        again = wb.save(name, str(tmp_path / "again.tgz"))
    assert archive.read_bytes() == again.read_bytes()
    assert not [finding for finding in check(archive) if finding.wrong]
    with tarfile.open(archive) as tar:
        wanted = "config.pbtxt" if name == "m" else f"{name}/config.pbtxt"
        assert wanted in tar.getnames()
