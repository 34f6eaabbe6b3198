"""What is served of a folder, by the layouts that artifacts have."""

import errno
from pathlib import Path

import pytest

from workbench.annexes.sagemaker.layouts import artifact_in, find_artifact, wrapper_of
from workbench.errors import InvalidRequest, LoadFailed, ModelNotFound

ENSEMBLE = "ensemble_scheduling {}"


def made(folder: Path, *files: str) -> Path:
    """*folder* with empty *files*; one that ends in ``/`` is a folder."""
    for name in files:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(ENSEMBLE if name.endswith("pipe/config.pbtxt") else "")
    return folder


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (["model.onnx"], "."),
        (["other.onnx"], "other.onnx"),
        (["config.pbtxt", "1/"], "."),
        (["1/model.onnx"], "."),
        (["a/b/other.onnx"], "a/b/other.onnx"),
        (["a/other.onnx", ".git/config"], "a/other.onnx"),
        (["a/1/model.onnx", "notes/1"], "a"),
        (["a/model.onnx", "code/helpers.py", "__MACOSX/a/model.onnx"], "a"),
        (["MAR-INF/MANIFEST.json", "net.onnx"], "net.onnx"),
    ],
)
def test_where_the_model_is(tmp_path: Path, files: list[str], path: str) -> None:
    """At the top, or in up to two folders around it, beside folders that are no models."""
    assert artifact_in(made(tmp_path, *files)).path == tmp_path / path


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (["a/b/c/other.onnx"], "put in model.onnx"),
        (["a.onnx", "b.onnx"], "holds several models, a.onnx, b.onnx: leave one of them"),
        (["a/model.onnx", "b/model.onnx"], "a, b: one of them must be an ensemble"),
        (["one_pipe/config.pbtxt", "two_pipe/config.pbtxt"], "one of them must be an ensemble"),
        (["inference.py"], "move inference.py into a folder code"),
        (["code/other.py"], "rename the script in code to inference.py"),
        (["model.tar.gz"], "it is packed twice, use the model.tar.gz in it"),
        (["net.pt"], "code/inference.py, which loads net.pt"),
    ],
)
def test_a_folder_without_one_model(tmp_path: Path, files: list[str], fault: str) -> None:
    """It is said what to do about it."""
    with pytest.raises(LoadFailed) as caught:
        artifact_in(made(tmp_path, *files))
    assert fault in str(caught.value)


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said, and why."""

    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(LoadFailed, match=r"cannot be read: Permission denied$"):
        artifact_in(tmp_path)


def test_of_many_models_some_are_named(tmp_path: Path) -> None:
    """Ten of them."""
    with pytest.raises(LoadFailed, match=r" m00\.onnx, .*, m09\.onnx: "):
        artifact_in(made(tmp_path, *(f"m{number:02}.onnx" for number in range(20))))


def test_an_ensemble_brings_its_parts(tmp_path: Path) -> None:
    """Of several models it is the one that is served."""
    made(tmp_path, "my_pipe/config.pbtxt", "my_pipe/1/", "a/model.onnx", "b/model.onnx")
    artifact = artifact_in(tmp_path)
    assert artifact.path == tmp_path / "my_pipe"
    assert artifact.parts == {"a": tmp_path / "a", "b": tmp_path / "b"}


@pytest.mark.parametrize("link", ["net.onnx", "code/inference.py", "a"])
def test_a_link_out_of_the_artifact(tmp_path: Path, link: str) -> None:
    """A model, its code, and a part of an ensemble must be in the artifact itself."""
    outside = made(tmp_path / "outside", "model.onnx")
    folder = made(tmp_path / "artifact", "code/")
    if link == "a":
        made(folder, "my_pipe/config.pbtxt")
    (folder / link).symlink_to(outside if link == "a" else outside / "model.onnx")
    with pytest.raises(LoadFailed, match="is a link out of the artifact: put in what it links to"):
        artifact_in(folder)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("relative", InvalidRequest),
        ("/there/../here", InvalidRequest),
        ("/a\0b", InvalidRequest),
        ("/nowhere/at/all", ModelNotFound),
        (f"/{'a' * 5000}", ModelNotFound),
        (__file__, InvalidRequest),
    ],
)
def test_urls_that_are_no_folders(url: str, error: type[Exception]) -> None:
    """Each is refused as what it is."""
    with pytest.raises(error):
        find_artifact(url)


@pytest.mark.parametrize("url", ["/proc/self", "/proc", "/sys/kernel", "/dev"])
def test_folders_of_the_system(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is searched below them, also by way of a link; shared memory is no such folder."""
    monkeypatch.setattr(Path, "iterdir", lambda _: pytest.fail("it was searched"))
    (tmp_path / "link").symlink_to(url)
    for each in (url, f"{tmp_path}/link"):
        with pytest.raises(InvalidRequest, match="is a folder of the system, which"):
            find_artifact(each)
    with pytest.raises(ModelNotFound):
        find_artifact("/dev/shm/nowhere")


@pytest.mark.parametrize(
    ("files", "wrapper"),
    [
        (["net/model.onnx", "._net", ".DS_Store", "__MACOSX/net"], "net"),
        (["1/model.onnx"], None),
        (["code/inference.py"], None),
        (["net/config.pbtxt"], None),
        (["model.onnx"], None),
        (["a/model.onnx", "b/model.onnx"], None),
    ],
)
def test_the_folder_around_a_model(tmp_path: Path, files: list[str], wrapper: str | None) -> None:
    """It is one that most containers do not look through: no version, no code, no model's own."""
    assert wrapper_of(made(tmp_path, *files)) == wrapper
