"""The repository: three layouts, versions, functions, and whatever else lies in a folder."""

import os
import re
import shutil
from pathlib import Path

import pytest

from workbench.errors import LoadFailed, ModelNotFound, RepositoryError, VersionNotFound
from workbench.model import FunctionModel, ModelConfig, ModelId, TensorSpec
from workbench.repository import ModelRepository, Override
from workbench.repository import config as configs
from workbench.repository import folder as module
from workbench.repository import repository as repositories
from workbench.repository.folder import ModelFolder
from workbench.repository.one_model import model_of

FUNCTION = FunctionModel(
    lambda x: x, (TensorSpec("x", "FP32", (-1,)),), (TensorSpec("y", "FP32", (-1,)),)
)
OTHER = FunctionModel(lambda x: x, FUNCTION.inputs, FUNCTION.outputs)


def put(root: Path, *paths: str) -> None:
    """Empty files at *paths* under *root*, and folders where a path ends with a slash."""
    for text in paths:
        path = root / text
        if text.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")


def configure(root: Path, name: str, text: str) -> None:
    (root / name).mkdir(exist_ok=True)
    (root / name / "config.pbtxt").write_text(text, encoding="utf-8")


# ── layouts ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "version"), [("m/7/model.onnx", 7), ("m/model.onnx", 1), ("m.onnx", 1)]
)
def test_layouts(tmp_path: Path, path: str, version: int) -> None:
    """A model is a folder of versions, a folder with a file, or a file."""
    put(tmp_path, path)
    repository = ModelRepository(tmp_path)
    assert repository.names() == ("m",)
    model = repository.find("m")
    assert model.config.name == "m"
    assert model.versions == (version,)
    source = model.source()
    assert source.id == ModelId("m", version)
    assert source.origin == tmp_path / path
    assert source.config is model.config


@pytest.mark.parametrize(
    ("paths", "taken"),
    [
        (("config.pbtxt",), "."),
        (("config.pbtxt", "1/net.onnx", "labels.txt", "warmup/x"), "."),
        (("1/model.onnx",), "."),
        (("3/model.onnx", "7/model.onnx", "onnx/model.onnx"), "."),
        (("model.onnx", "model_fp16.onnx", "1_Pooling/config.json"), "."),
        (("onnx/model.onnx", "onnx/model_fp16.onnx", "config.json", ".cache/x"), "onnx/model.onnx"),
        (("net.onnx", "net.onnx.data"), "net.onnx"),
        # folders of models
        ((), None),
        (("wine/1/model.onnx",), None),
        (("a.onnx", "b.onnx"), None),
        (("onnx/1/model.onnx",), None),
        (("1/1/model.onnx",), None),
        # of models too: one is not served instead of several
        (("net.onnx", "wine/model.onnx"), None),
        (("1/model.onnx", "wine/config.pbtxt"), None),
        (("onnx/model.onnx", "wine/1/model.onnx"), None),
        (("onnx/model.onnx", "onnx/2/model.onnx"), "onnx/model.onnx"),
    ],
)
def test_a_folder_that_is_one_model(
    tmp_path: Path, paths: tuple[str, ...], taken: str | None
) -> None:
    """With a name, a folder of one model is served under it; a folder of models as without."""
    put(tmp_path, *paths)
    assert model_of(tmp_path) == (None if taken is None else tmp_path / taken)
    names = ModelRepository(tmp_path).names() if taken is None else ("x",)
    assert ModelRepository(tmp_path, name="x").names() == names


def test_a_folder_of_one_model_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder that is not there is no model, and the error is that of any other."""
    assert model_of(tmp_path / "gone") is None
    with pytest.raises(RepositoryError, match="does not exist"):
        ModelRepository(tmp_path / "gone", name="x")


def test_the_name_of_a_folder_of_one_model(tmp_path: Path) -> None:
    """The given name stands, not that in the configuration; its other lines count."""
    put(tmp_path, "1/net.onnx")
    configure(tmp_path, ".", 'name: "other" default_model_filename: "net.onnx"')
    model = ModelRepository(tmp_path, name="x").find("x")
    assert (model.config.name, model.versions) == ("x", (1,))
    assert model.source().origin == tmp_path / "1" / "net.onnx"


def test_links_in_a_folder_of_one_model(tmp_path: Path) -> None:
    """They may lead to its other folders, as in a cache of Hugging Face, and not out of it."""
    put(tmp_path, "m/blobs/7f", "m/onnx/", "elsewhere")
    link = tmp_path / "m" / "onnx" / "model.onnx"
    for target, fits in ((tmp_path / "m/blobs/7f", True), (tmp_path / "elsewhere", False)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        repository = ModelRepository(tmp_path / "m", name="x")
        if fits:
            assert repository.find("x").source().origin == link
        else:
            with pytest.raises(LoadFailed, match="is a link out of the repository"):
                repository.find("x")


def test_the_sample_models(sample_models: Path) -> None:
    """The committed sample models are all found, and their files are there."""
    repository = ModelRepository(sample_models)
    assert {"digits", "digits_conv", "diabetes", "wine"} <= set(repository.names())
    for name in ("digits", "digits_conv", "diabetes", "wine"):
        origin = repository.find(name).source().origin
        assert isinstance(origin, Path)
        assert origin.is_file()


def test_version_folders_win(tmp_path: Path) -> None:
    """Where a folder has versions, a file beside them is not one."""
    put(tmp_path, "m/model.onnx", "m/3/model.onnx")
    assert ModelRepository(tmp_path).find("m").source().id.version == 3


def test_a_folder_wins_over_a_file(tmp_path: Path) -> None:
    """Where a folder and a file have the same name, the folder is the model, listed once."""
    put(tmp_path, "m/3/model.onnx", "m.onnx")
    repository = ModelRepository(tmp_path)
    assert repository.names() == ("m",)
    assert repository.find("m").versions == (3,)


def test_the_config_names_the_file(tmp_path: Path) -> None:
    """default_model_filename is the file's name in both folder layouts."""
    text = 'default_model_filename: "net.onnx"'
    put(tmp_path, "versions/2/net.onnx", "flat/net.onnx")
    configure(tmp_path, "versions", text)
    configure(tmp_path, "flat", text)
    repository = ModelRepository(tmp_path)
    assert repository.find("versions").source().origin == tmp_path / "versions/2/net.onnx"
    assert repository.find("flat").source().origin == tmp_path / "flat/net.onnx"


def test_names_are_sorted_and_only_models(tmp_path: Path) -> None:
    """The names are sorted; hidden files, caches and other files are no models."""
    put(tmp_path, "b/1/model.onnx", "A.onnx", "c/", ".git/", ".x.onnx", "__pycache__/", "README.md",
        "a.onnx.bak", "model.ONNX", ".onnx")  # fmt: skip
    assert ModelRepository(tmp_path).names() == ("A", "b", "c")


def test_an_empty_repository(tmp_path: Path) -> None:
    """An empty folder, and none at all, hold no models and say so."""
    for repository in (ModelRepository(tmp_path), ModelRepository()):
        assert repository.names() == ()
        with pytest.raises(ModelNotFound, match="there is no model 'm'; the repository is empty"):
            repository.find("m")


def test_an_unknown_model_lists_the_known(tmp_path: Path) -> None:
    """An unknown name is told the known ones, the first ten of many."""
    put(tmp_path, *(f"m{n:02}.onnx" for n in range(12)))
    with pytest.raises(ModelNotFound) as caught:
        ModelRepository(tmp_path).find("nope")
    assert str(caught.value) == (
        "there is no model 'nope'; available: "
        "m00, m01, m02, m03, m04, m05, m06, m07, m08, m09 and 2 more"
    )
    for name in ("m10", "m11"):
        (tmp_path / f"{name}.onnx").unlink()
    with pytest.raises(ModelNotFound, match=r"m09$"):
        ModelRepository(tmp_path).find("nope")


# ── roots that cannot be ────────────────────────────────────────────────────


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    """A folder that does not exist is a RepositoryError that names it in full."""
    with pytest.raises(RepositoryError, match=r"'/.*nope' does not exist"):
        ModelRepository(tmp_path / "nope")


def test_a_misspelt_root(tmp_path: Path) -> None:
    """A folder that does not exist is told the folder beside it that is spelt like it."""
    (tmp_path / "sample_models").mkdir()
    (tmp_path / "sample_model.txt").touch()
    meant = re.escape(f"does not exist; did you mean '{tmp_path / 'sample_models'}'?")
    with pytest.raises(RepositoryError, match=meant):
        ModelRepository(tmp_path / "sample_model")


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    """A file is no repository."""
    put(tmp_path, "m.onnx")
    with pytest.raises(RepositoryError, match="is a file, not a folder"):
        ModelRepository(tmp_path / "m.onnx")


def test_a_root_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that refuses to be read is a RepositoryError with the system's reason."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("workbench.repository.folder.os.scandir", refuse)
    with pytest.raises(RepositoryError, match=r"': Permission denied$"):
        ModelRepository(tmp_path)


def test_a_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative root stays the same folder when the process goes elsewhere."""
    put(tmp_path, "models/m.onnx", "elsewhere/")
    monkeypatch.chdir(tmp_path)
    repository = ModelRepository(Path("models"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert repository.find("m").source().origin == tmp_path / "models/m.onnx"


# ── versions ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", (10,)),
        ("version_policy { latest { num_versions: 2 } }", (9, 10)),
        ("version_policy { all {} }", (1, 9, 10)),
        ("version_policy { specific { versions: [9, 1, 4] } }", (1, 9)),
    ],
)
def test_version_policy(tmp_path: Path, policy: str, served: tuple[int, ...]) -> None:
    """The served versions are the policy's, ascending by number, and the highest is the default."""
    put(tmp_path, *(f"m/{version}/model.onnx" for version in (1, 9, 10)))
    configure(tmp_path, "m", policy)
    model = ModelRepository(tmp_path).find("m")
    assert model.versions == served
    assert model.source().id.version == served[-1]
    for version in served:
        assert model.source(version).origin == tmp_path / f"m/{version}/model.onnx"


@pytest.mark.parametrize("version", [1, 9, 0, -1, 11, 2**70])
def test_a_version_that_is_not_served(tmp_path: Path, version: int) -> None:
    """A version that is not there, or not served, is named with those that are."""
    put(tmp_path, *(f"m/{version}/model.onnx" for version in (1, 9, 10, 20)))
    configure(tmp_path, "m", "version_policy { latest { num_versions: 2 } }")
    with pytest.raises(
        VersionNotFound, match=f"^model 'm' has no version {version}; it has 10, 20$"
    ):
        ModelRepository(tmp_path).find("m").source(version)


def test_what_is_no_version(tmp_path: Path) -> None:
    """A version is a folder named by a number from 1 without leading zeros; all else is not."""
    put(tmp_path, "m/2/model.onnx", "m/01/model.onnx", "m/0/model.onnx", "m/-3/model.onnx", "m/v4/",
        "m/5", "m/1.5/", "m/٣/model.onnx", "m/+6/", "m/.7/", "m/1_0/")  # fmt: skip
    configure(tmp_path, "m", "version_policy { all {} }")
    assert ModelRepository(tmp_path).find("m").versions == (2,)


def test_a_very_high_version(tmp_path: Path) -> None:
    """A version may be any number that a client can name, such as a date and time."""
    put(tmp_path, "m/20260401123456/model.onnx", f"m/{2**63 - 1}/model.onnx")
    configure(tmp_path, "m", "version_policy { all {} }")
    assert ModelRepository(tmp_path).find("m").versions == (20260401123456, 2**63 - 1)


@pytest.mark.parametrize("version", [str(2**63), str(2**70), "9" * 200])
def test_a_version_that_is_too_high(tmp_path: Path, version: str) -> None:
    """A folder with a number that no client can name is left out, and that is told of it."""
    put(tmp_path, f"m/{version}/model.onnx", "m/1/model.onnx", "m/01/model.onnx")
    found = ModelRepository(tmp_path).find("m")
    assert (found.versions, found.left_out) == ((1,), ("01", version))


# ── what is broken ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "no_version"),
    [
        ("m/", ""),
        ("m/README.md", ""),
        ("m/warmup/sample", ""),
        ("m/v1/model.onnx", "v1"),
        ("m/0/model.onnx", "0"),
        ("m/01/model.onnx", "01"),
        ("m/9223372036854775808/model.onnx", "9223372036854775808"),
    ],
)
def test_a_folder_without_a_model(tmp_path: Path, path: str, no_version: str) -> None:
    """A folder that holds no model is listed; asked for, it says what is to be put in."""
    put(tmp_path, path)
    repository = ModelRepository(tmp_path)
    assert repository.names() == ("m",)
    with pytest.raises(LoadFailed) as caught:
        repository.find("m")
    told = "the folder of model 'm' holds no model: put in 1/model.onnx or model.onnx"
    if no_version:
        told += f"; {no_version!r} is not a version: a number from 1 to {2**63 - 1}, "
        told += "no leading zeros"
    assert str(caught.value) == told


def test_a_folder_that_mlflow_saved(tmp_path: Path) -> None:
    """Only its ONNX models are files that can be served; how to serve others is said."""
    put(tmp_path, "m/MLmodel", "m/model.pkl", "onnx/MLmodel", "onnx/model.onnx")
    repository = ModelRepository(tmp_path)
    assert repository.find("onnx").versions == (1,)
    told = "the folder of model 'm' is MLflow's: load it with MLflow, and give that to wb.serve$"
    with pytest.raises(LoadFailed, match=told):
        repository.find("m")


def test_a_policy_that_serves_nothing(tmp_path: Path) -> None:
    """A policy that names none of the versions is a LoadFailed with the versions there are."""
    put(tmp_path, "m/2/model.onnx", "m/10/model.onnx")
    configure(tmp_path, "m", "version_policy { specific { versions: [3] } }")
    with pytest.raises(LoadFailed, match=r"config\.pbtxt serves none of versions 2, 10$"):
        ModelRepository(tmp_path).find("m")


def test_one_broken_model_breaks_no_other(tmp_path: Path) -> None:
    """A model with a broken configuration is listed and fails alone."""
    put(tmp_path, "good.onnx", "bad/1/model.onnx")
    configure(tmp_path, "bad", "nonsense")
    repository = ModelRepository(tmp_path)
    assert repository.names() == ("bad", "good")
    assert repository.find("good").versions == (1,)
    with pytest.raises(LoadFailed):
        repository.find("bad")


# ── names ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../secret", "..\\secret", "a/../../secret", "a/..", "/etc/passwd", "a//b",
     "a\0b", "\0", "sub/../m", "./m", "m/", "m/1", "m/1/model.onnx", "sub/deep", "sub\\deep",
     "x" * 300, "ä" * 300, "\ud800", "m\n", "m.onnx", ".hidden", "__pycache__", "~", "M"],
)  # fmt: skip
def test_paths_are_no_names(tmp_path: Path, name: str) -> None:
    """Nothing outside the folder, inside a model, hidden, or too long is found by any name."""
    put(tmp_path, "secret/1/model.onnx", "root/m/1/model.onnx", "root/sub/deep/1/model.onnx",
        "root/.hidden/1/model.onnx", "root/__pycache__/1/model.onnx", "secret.onnx")  # fmt: skip
    with pytest.raises(ModelNotFound):
        ModelRepository(tmp_path / "root").find(name)


@pytest.mark.parametrize(
    "name", ["ä", "模型", "👩‍🔬", "a b", "a.b", "a.onnx", "%2e", "-x", "a:1", "x" * 200]
)
def test_names_of_any_script(tmp_path: Path, name: str) -> None:
    """A model's name may hold spaces, dots and any script."""
    put(tmp_path, f"{name}/1/model.onnx")
    repository = ModelRepository(tmp_path)
    assert repository.names() == (name,)
    assert repository.find(name).source().id == ModelId(name, 1)


@pytest.mark.parametrize("name", [b"\xff", b"a\nb", b"a\\b", b"\x1b[31m", b"a\x7f"])
def test_names_that_nobody_can_say(tmp_path: Path, name: bytes) -> None:
    """A folder whose name no wire can carry, or no line can show, is no model, and breaks none."""
    folder = os.fsencode(tmp_path) + b"/" + name
    try:
        os.makedirs(folder + b"/1")  # noqa: PTH103 - the name is bytes
    except (OSError, ValueError):
        pytest.skip("this file system has no such names")
    put(tmp_path, "m.onnx")
    repository = ModelRepository(tmp_path)
    assert repository.names() == ("m",)
    with pytest.raises(ModelNotFound):
        repository.find(os.fsdecode(name))


def test_every_listed_name_is_found(tmp_path: Path) -> None:
    """What is listed can be asked for: it is found, or said to be broken."""
    put(tmp_path, "a.onnx", "b/1/model.onnx", "c/", "d.e.onnx", "f.onnx/1/model.onnx", "..g/",
        "h\\i/1/", "-/", " /1/model.onnx", "j/model.onnx")  # fmt: skip
    repository = ModelRepository(tmp_path)
    found = []
    for name in repository.names():
        try:
            found.append(repository.find(name).config.name)
        except LoadFailed:
            found.append(name)
    assert tuple(found) == repository.names() == (" ", "-", "a", "b", "c", "d.e", "f.onnx", "j")


# ── links ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("store", "follow"), [("root/store", False), ("store", True)])
def test_links_are_followed(tmp_path: Path, store: str, follow: bool) -> None:
    """Links to models, versions and files are what they point to, under their own name.

    That is in the repository, unless they may lead out of it.
    """
    put(tmp_path, f"{store}/x/1/model.onnx", "root/m/")
    root, model = tmp_path / "root", tmp_path / store / "x"
    (root / "linked").symlink_to(model)
    (root / "m/4").symlink_to(model / "1")
    (root / "file.onnx").symlink_to(model / "1/model.onnx")
    repository = ModelRepository(root, follow_links=follow)
    assert {"file", "linked", "m"} <= set(repository.names())
    assert repository.find("linked").source().id == ModelId("linked", 1)
    assert repository.find("m").versions == (4,)
    assert repository.find("file").source().origin == root / "file.onnx"


def refused(link: Path, target: Path) -> str:
    return (
        f"{link} is a link out of the repository, to {target.resolve()}; the setting follow_links "
        "allows that"
    )


LINKS = {
    "the model": ("m", "out"),
    "the model's file": ("m.onnx", "out/model.onnx"),
    "a version": ("m/1", "out/1"),
    "the file of no version": ("m/model.onnx", "out/model.onnx"),
    "a version's file": ("m/1/model.onnx", "out/model.onnx"),
    "the configuration": ("m/config.pbtxt", "out/config.pbtxt"),
}


@pytest.mark.parametrize("case", LINKS)
def test_links_out_of_the_repository(tmp_path: Path, case: str) -> None:
    """A model with a link out of its repository is broken, with the link's name, and only it is."""
    link, target = LINKS[case]
    root = tmp_path / "root"
    put(tmp_path, "out/1/model.onnx", "out/model.onnx", "out/config.pbtxt")
    put(root, "good/1/model.onnx")
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    (root / link).symlink_to(tmp_path / target)
    repository = ModelRepository(root)
    assert repository.names() == ("good", "m")
    with pytest.raises(LoadFailed) as caught:
        repository.find("m")
    assert str(caught.value) == refused(root / link, tmp_path / target)
    assert repository.find("good").versions == (1,)
    assert type(dict(repository.versions())["m"]) is LoadFailed


@pytest.mark.parametrize(
    ("link", "beside"), [("m", "root/"), ("m/1", "root/m/"), ("m/1", "root/m/config.pbtxt")]
)
def test_links_out_of_a_large_repository(tmp_path: Path, link: str, beside: str) -> None:
    """Where not all configurations are read for an index, links are looked at all the same."""
    put(tmp_path, "out/1/model.onnx", beside)
    target = tmp_path / "out" / link.partition("/")[2]
    (tmp_path / "root" / link).symlink_to(target)
    with pytest.raises(LoadFailed, match="a link out of the repository"):
        ModelFolder(tmp_path / "root").versions("m")


def test_a_model_without_versions_in_a_large_repository(tmp_path: Path) -> None:
    """Where not all configurations are read for an index, a folder with a file is version 1."""
    put(tmp_path, "m/config.pbtxt", "m/model.onnx")
    assert ModelFolder(tmp_path).versions("m") == (1,)


LABELS = 'output { name: "y" data_type: TYPE_FP32 dims: 1 label_filename: "labels.txt" }'
SAMPLE = 'key: "x" value { data_type: TYPE_FP32 dims: 1 input_data_file: "sample" }'
WARM_UP = f"model_warmup {{ batch_size: 1 inputs {{ {SAMPLE} }} }}"


@pytest.mark.parametrize(
    ("link", "target", "config"),
    [
        ("labels.txt", "out/sample", LABELS),
        ("warmup/sample", "out/sample", WARM_UP),
        ("warmup", "out", WARM_UP),
    ],
)
def test_links_that_a_configuration_names(
    tmp_path: Path, link: str, target: str, config: str
) -> None:
    """Labels and samples do not come from outside of the repository either."""
    put(tmp_path, "root/m/1/model.onnx", "out/sample")
    path = tmp_path / "root" / "m" / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path / target)
    repository = ModelRepository(tmp_path / "root")
    assert repository.find("m").versions == (1,)  # for nobody reads it
    configure(tmp_path / "root", "m", config)
    with pytest.raises(LoadFailed) as caught:
        repository.find("m")
    assert str(caught.value) == refused(path, tmp_path / target)


def test_links_that_a_load_names(tmp_path: Path) -> None:
    """Nor do the labels of a configuration that comes with a load."""
    put(tmp_path, "root/m/1/model.onnx", "out")
    link = tmp_path / "root" / "m" / "labels.txt"
    link.symlink_to(tmp_path / "out")
    output = '{"name": "y", "data_type": "TYPE_FP32", "dims": [1], "label_filename": "labels.txt"}'
    with pytest.raises(LoadFailed) as caught:
        ModelRepository(tmp_path / "root").read_override("m", f'{{"output": [{output}]}}', {})
    assert str(caught.value) == refused(link, tmp_path / "out")


def test_links_to_the_like(tmp_path: Path) -> None:
    """A folder beside the repository whose name begins as its own is outside of it."""
    put(tmp_path, "root/good.onnx", "rooted/model.onnx")
    (tmp_path / "root" / "m.onnx").symlink_to(tmp_path / "rooted" / "model.onnx")
    with pytest.raises(LoadFailed, match="a link out of the repository"):
        ModelRepository(tmp_path / "root").find("m")


def test_a_linked_root_is_switched(tmp_path: Path) -> None:
    """A root may be a link, which may be switched to another folder, with links of its own."""
    for release in ("one", "two"):
        put(tmp_path, f"{release}/store/1/model.onnx")
        (tmp_path / release / "m").symlink_to(tmp_path / release / "store")
        (tmp_path / "new").symlink_to(release)
        (tmp_path / "new").replace(tmp_path / "current")
        if release == "one":
            repository = ModelRepository(tmp_path / "current")
        assert (repository.names(), repository.find("m").versions) == (("m", "store"), (1,))


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    """A dangling link and a loop of links are no models."""
    for name, target in (("gone", "nowhere"), ("gone.onnx", "nowhere"), ("a", "b"), ("b", "a")):
        (tmp_path / name).symlink_to(tmp_path / target)
    repository = ModelRepository(tmp_path)
    assert repository.names() == ()
    for name in ("gone", "a", "b"):
        with pytest.raises(ModelNotFound):
            repository.find(name)


# ── changes ─────────────────────────────────────────────────────────────────


def test_nothing_is_kept(tmp_path: Path) -> None:
    """What is added, changed and removed counts from the next question on."""
    repository = ModelRepository(tmp_path)
    put(tmp_path, "m/1/model.onnx")
    assert repository.find("m").versions == (1,)
    put(tmp_path, "m/2/model.onnx")
    assert repository.find("m").versions == (2,)
    configure(tmp_path, "m", "max_batch_size: 8 version_policy { all {} }")
    assert repository.find("m").versions == (1, 2)
    assert repository.find("m").config.max_batch_size == 8
    shutil.rmtree(tmp_path / "m" / "2")
    assert repository.find("m").versions == (1,)
    shutil.rmtree(tmp_path / "m")
    with pytest.raises(ModelNotFound):
        repository.find("m")
    put(tmp_path, "m.onnx")
    assert repository.find("m").source().origin == tmp_path / "m.onnx"


def test_the_root_goes(tmp_path: Path) -> None:
    """When a root is removed, who asks for its models is told, and its return heals it."""
    root = tmp_path / "root"
    put(root, "m.onnx")
    put(tmp_path, "other/n.onnx")
    repository = ModelRepository(root, tmp_path / "other")
    shutil.rmtree(root)
    assert repository.names() == ("n",)
    with pytest.raises(RepositoryError, match=r"root': No such file or directory$"):
        repository.find("m")
    with pytest.raises(RepositoryError, match=r"root': No such file or directory$"):
        repository.fingerprints()
    put(root, "m.onnx")
    assert repository.find("m").versions == (1,)


def test_a_folder_goes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose folder goes between two looks at it is a LoadFailed, no traceback."""
    put(tmp_path, "m/1/model.onnx", "m/config.pbtxt")
    real = module._listed

    def then_gone(folder: str) -> object:
        shutil.rmtree(folder)
        return real(folder)

    monkeypatch.setattr(module, "_listed", then_gone)
    with pytest.raises(LoadFailed, match="No such file or directory"):
        ModelRepository(tmp_path).find("m")


# ── several folders ─────────────────────────────────────────────────────────


def test_several_folders(tmp_path: Path) -> None:
    """The models of all of them are served; one that is given twice counts once."""
    put(tmp_path, "one/a.onnx", "two/b/1/model.onnx")
    roots = [tmp_path / "one", tmp_path / "two", tmp_path / "one"]
    repository = ModelRepository(*roots)
    assert repository.names() == ("a", "b")
    assert repository.find("a").source().origin == tmp_path / "one/a.onnx"
    assert dict(repository.versions()) == {"a": (1,), "b": (1,)}
    with pytest.raises(RepositoryError, match="is taken by a model of the repository folder"):
        repository.add_function(ModelId("b", 1), FUNCTION)
    with pytest.raises(RepositoryError, match="does not exist"):
        ModelRepository(tmp_path / "one", tmp_path / "nowhere")


@pytest.mark.parametrize("many", [False, True])
def test_a_model_in_several_folders(
    many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served from none of them, and says why; the others are served."""
    put(tmp_path, "one/a.onnx", "two/a/1/model.onnx", "two/b.onnx")
    monkeypatch.setattr(repositories, "_READ_CONFIGS", 0 if many else 10)
    repository = ModelRepository(tmp_path / "one", tmp_path / "two")
    told = (
        "model 'a' appears in two or more repositories: "
        f"'{tmp_path}/one' and '{tmp_path}/two'; rename one"
    )
    for ask in (repository.find, repository.lasting):
        with pytest.raises(ModelNotFound) as caught:
            ask("a")
        assert str(caught.value) == told
    found = dict(repository.versions())
    assert str(found["a"]) == told
    assert found["b"] == (1,)
    before = repository.fingerprints()["a"]
    (tmp_path / "one/a.onnx").unlink()
    assert repository.fingerprints()["a"] != before


# ── many ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("many", [False, True])
def test_versions_of_all(many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All models come with their versions; of many, what nobody asked about is not all read."""
    put(tmp_path, "flat/model.onnx", "file.onnx", "empty/", "none/1/model.onnx", "bad/3/model.onnx")
    put(tmp_path, *(f"{name}/{n}/model.onnx" for name in ("two", "both") for n in (1, 2)))
    configure(tmp_path, "two", "max_batch_size: 8")
    configure(tmp_path, "both", "version_policy { all {} }")
    configure(tmp_path, "none", "version_policy { specific { versions: [3] } }")
    configure(tmp_path, "bad", "nonsense")
    if many:
        monkeypatch.setattr(repositories, "_READ_CONFIGS", 5)
    repository = ModelRepository(tmp_path)
    repository.add_function(ModelId("function", 4), FUNCTION)

    def told() -> dict[str, object]:
        return {
            name: type(found) if isinstance(found, Exception) else found
            for name, found in repository.versions()
        }

    expected = {
        "bad": LoadFailed, "both": (1, 2), "empty": LoadFailed, "file": (1,), "flat": (1,),
        "function": (4,), "none": LoadFailed, "two": (2,),
    }  # fmt: skip
    assert told() == expected | ({"bad": (3,)} if many else {})
    assert list(told()) == sorted(expected)
    with pytest.raises(LoadFailed):
        repository.find("bad")


def test_configurations_are_kept_while_their_files_stay(tmp_path: Path) -> None:
    """One is read again when its file, or one that it names, is another."""
    put(tmp_path, "m/1/model.onnx", "m/labels.txt")
    configure(tmp_path, "m", LABELS)
    repository = ModelRepository(tmp_path)
    config = repository.find("m").config
    assert repository.find("m").config is config
    (tmp_path / "m" / "labels.txt").write_text("cat")
    assert repository.find("m").config.labels == {"y": ("cat",)}
    configure(tmp_path, "m", "max_batch_size: 8")
    assert repository.find("m").config.max_batch_size == 8
    (tmp_path / "m" / "config.pbtxt").unlink()
    assert repository.find("m").config == ModelConfig("m")


def test_a_configuration_that_is_being_written_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its file changes while it is read, it is read again by the next one who asks."""
    put(tmp_path, "m/1/model.onnx")
    configure(tmp_path, "m", "max_batch_size: 4")
    plain = configs._parsed

    def then_written(folder: Path) -> object:
        found = plain(folder)
        configure(tmp_path, "m", "max_batch_size: 16")
        return found

    repository = ModelRepository(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(configs, "_parsed", then_written)
        assert repository.find("m").config.max_batch_size == 4
    assert repository.find("m").config.max_batch_size == 16


def test_configurations_of_models_that_went_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where models come and go, what was read of them does not pile up."""
    monkeypatch.setattr(configs, "_SOME", 3)
    repository = ModelRepository(tmp_path)
    for number in range(10):
        put(tmp_path, f"m{number}/1/model.onnx")
        configure(tmp_path, f"m{number}", "max_batch_size: 8")
        repository.find(f"m{number}")
        shutil.rmtree(tmp_path / f"m{number}")
        repository.names()
    (folder,) = repository._folders
    assert len(folder._configs._known) <= 4


# ── functions ───────────────────────────────────────────────────────────────


def test_models_of_an_endpoint_are_no_choice(tmp_path: Path) -> None:
    """An unknown name is not told those of an endpoint, and none of them is configured."""
    put(tmp_path, "m.onnx")
    repository = ModelRepository(tmp_path)
    repository.add_function(ModelId("sagemaker/a", 1), FUNCTION)
    with pytest.raises(ModelNotFound, match=r"; available: m$"):
        repository.find("nope")
    with pytest.raises(ModelNotFound, match="there is no model 'sagemaker/b'"):
        repository.read_override("sagemaker/b", "no JSON", {})


def test_functions(tmp_path: Path) -> None:
    """A function is a model among the files' ones, under its name and version."""
    put(tmp_path, "m.onnx")
    repository = ModelRepository(tmp_path)
    repository.add_function(ModelId("f", 2), FUNCTION)
    assert repository.names() == ("f", "m")
    source = repository.find("f").source()
    assert (source.id, source.origin) == (ModelId("f", 2), FUNCTION)
    assert source.config.name == "f"


def test_versions_of_a_function() -> None:
    """A function has all versions that were added, and a second one of a version replaces it."""
    repository = ModelRepository()
    repository.add_function(ModelId("f", 3), FUNCTION)
    before = repository.find("f")
    repository.add_function(ModelId("f", 1), FUNCTION)
    repository.add_function(ModelId("f", 3), OTHER)
    model = repository.find("f")
    assert model.versions == (1, 3)
    assert model.source(3).origin is OTHER
    assert model.source(1).origin is FUNCTION
    assert before.versions == (3,)
    assert before.source().origin is FUNCTION
    with pytest.raises(VersionNotFound, match="model 'f' has no version 2; it has 1, 3"):
        model.source(2)


@pytest.mark.parametrize("path", ["f/1/model.onnx", "f.onnx", "f/"])
def test_a_name_is_taken_once(tmp_path: Path, path: str) -> None:
    """A function cannot take the name of a model of the folder, broken ones included."""
    put(tmp_path, path)
    repository = ModelRepository(tmp_path)
    with pytest.raises(RepositoryError, match="'f' is taken by a model of the repository folder"):
        repository.add_function(ModelId("f", 1), FUNCTION)
    assert repository.names() == ("f",)


def test_a_function_has_no_backslash() -> None:
    """A backslash in a function's name is refused; a slash is not."""
    with pytest.raises(RepositoryError, match="the name of a function has no backslash"):
        ModelRepository().add_function(ModelId("a\\b", 1), FUNCTION)
    repository = ModelRepository()
    repository.add_function(ModelId("a/b", 1), FUNCTION)
    assert repository.names() == ("a/b",)


@pytest.mark.parametrize("name", ["", "..", "../f", "f\0", "f\n", "\ud800"])
def test_a_function_has_a_name(name: str) -> None:
    """A function needs a name that a model can have."""
    repository = ModelRepository()
    with pytest.raises(ModelNotFound, match="cannot be the name of a model"):
        repository.add_function(ModelId(name, 1), FUNCTION)
    assert repository.names() == ()


def test_a_function_came_first(tmp_path: Path) -> None:
    """A function keeps its name when a folder of that name comes later, and is listed once."""
    repository = ModelRepository(tmp_path)
    repository.add_function(ModelId("f", 1), FUNCTION)
    put(tmp_path, "f/9/model.onnx")
    assert repository.names() == ("f",)
    assert repository.find("f").versions == (1,)


def test_a_name_below_another_is_no_part_of_it(tmp_path: Path) -> None:
    """Removing a model leaves those whose names only begin with its own."""
    repository = ModelRepository()
    put(tmp_path, "any/1/model.onnx")
    model = tmp_path / "any"
    for name in ("team", "team/iris"):
        repository.add(name, model)
    assert repository.remove("team") == ("team",)
    assert repository.names() == ("team/iris",)


def test_parts_go_with_their_ensemble_only(tmp_path: Path) -> None:
    """What has the name of a part of an ensemble that was removed before is no part of another."""
    put(tmp_path, "any/1/model.onnx")
    repository = ModelRepository()
    repository.add("e", tmp_path / "any", {"x": tmp_path / "any"})
    assert repository.remove("e") == ("e", "e/x")
    repository.add("e/x", tmp_path / "any")
    repository.add_function(ModelId("e", 1), FUNCTION)
    assert repository.remove("e") == ("e",)
    assert repository.names() == ("e/x",)


def test_a_model_in_the_place_of_a_part_is_none(tmp_path: Path) -> None:
    """What was added under the name of a part stays when the ensemble is removed or added anew."""
    put(tmp_path, "any/1/model.onnx")
    parts = {"x": tmp_path / "any"}
    for by_function in (False, True):
        repository = ModelRepository()
        repository.add("e", tmp_path / "any", parts)
        if by_function:
            repository.add_function(ModelId("e/x", 1), FUNCTION)
        else:
            repository.add("e/x", tmp_path / "any")
        with pytest.raises(RepositoryError, match="'e/x', a part of 'e', has the name of another"):
            repository.add("e", tmp_path / "any", parts)
        assert repository.names() == ("e", "e/x")
        assert repository.remove("e") == ("e",)
        assert repository.names() == ("e/x",)


@pytest.mark.parametrize("name", [".m", "__m", "a\\b"])
def test_a_folder_that_is_added_has_a_name(tmp_path: Path, name: str) -> None:
    """What no folder of a repository could be called, no folder that is added is called either."""
    put(tmp_path, "any/1/model.onnx")
    with pytest.raises(RepositoryError, match="no model can be called"):
        ModelRepository().add(name, tmp_path / "any")


def test_an_ensemble_is_added_whole(tmp_path: Path) -> None:
    """What is added anew replaces all parts of before; what cannot be added changes nothing."""
    repository = ModelRepository()
    put(tmp_path, "any/1/model.onnx")
    model = tmp_path / "any"
    repository.add("e", model, {"x": model})
    assert repository.names() == ("e", "e/x")
    with pytest.raises(RepositoryError):
        repository.add("e", tmp_path / "nowhere", {"y": model})
    assert repository.names() == ("e", "e/x")
    repository.add("e", model)
    assert repository.names() == ("e",)
    assert repository.remove("e") == ("e",)


def test_a_name_that_was_added_is_served_once(tmp_path: Path) -> None:
    """A function takes the place of a folder that was added under its name, and so the reverse."""
    put(tmp_path, "any/1/model.onnx")
    repository = ModelRepository()
    repository.add("m", tmp_path / "any")
    repository.add_function(ModelId("m", 1), FUNCTION)
    assert repository.find("m").source().origin is FUNCTION
    assert repository.fingerprints() == {}
    repository.add("m", tmp_path / "any")
    assert repository.find("m").source().origin == tmp_path / "any/1/model.onnx"
    assert repository.functions() == {}
    assert repository.remove("m") == ("m",)
    assert repository.names() == ()


def test_a_part_takes_no_name_of_another(tmp_path: Path) -> None:
    """An ensemble is not added if one of its parts would have the name of a model that is there."""
    put(tmp_path, "any/1/model.onnx")
    repository = ModelRepository()
    repository.add("one", tmp_path / "any", {"x": tmp_path / "any"})
    repository.set_override("two/x", Override(ModelConfig("two/x"), None, {1: ""}))
    with pytest.raises(RepositoryError, match="'two/x' is a model that came with its load"):
        repository.add("two", tmp_path / "any", {"x": tmp_path / "any"})
    assert repository.names() == ("one", "one/x", "two/x")


def test_what_is_taken_over_makes_no_twins(tmp_path: Path) -> None:
    """A model that was added gives way to one of its name in the folders of a new repository."""
    put(tmp_path, "a/1/model.onnx")
    old = ModelRepository()
    for name in ("a", "b"):
        old.add(name, tmp_path / "a")
    new = ModelRepository(tmp_path)
    new.take_over(old)
    assert new.names() == ("a", "b")
    assert new.find("a").versions == (1,)


def test_parts_are_taken_over_with_their_ensemble(tmp_path: Path) -> None:
    """An ensemble that was added keeps its parts in a new repository, and goes with them."""
    put(tmp_path, "any/1/model.onnx")
    old, new = ModelRepository(), ModelRepository()
    old.add("e", tmp_path / "any", {"x": tmp_path / "any"})
    new.take_over(old)
    assert new.names() == ("e", "e/x")
    assert new.remove("e") == ("e", "e/x")
    assert new.names() == ()
