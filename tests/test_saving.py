"""Saving served models as files that other servers take."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ensemble_texts import ensemble_of
from google.protobuf import text_format
from onnx_models import identity, scaled

from workbench import Workbench
from workbench.errors import ModelNotFound, UsageError, VersionNotFound
from workbench.protos import message_class
from workbench.repository.config import read_config

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)


def config_of(folder: Path) -> Any:
    text = (folder / "config.pbtxt").read_text("utf-8")
    return text_format.Parse(text, message_class("model_config", "inference.ModelConfig")())


def files_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def write_model(folder: Path, config: str = "", labels: str = "") -> None:
    identity(folder / "1" / "model.onnx", dims=("n", 4))
    if config:
        (folder / "config.pbtxt").write_text(config, "utf-8")
    if labels:
        (folder / "labels.txt").write_text(labels, "utf-8")


def test_a_converted_model_is_served_from_the_folder_as_it_was_in_the_notebook(
    tmp_path: Path,
) -> None:
    """What was fitted in Python, saved and served by another server, gives the same answers."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.LogisticRegression().fit(ROWS, [0, 1])
    with Workbench() as wb:
        wb.serve(model, "iris")
        expected = wb.infer("iris", ROWS)
        with pytest.raises(UsageError, match="needs check=, rows like those it will be asked with"):
            wb.save("iris", tmp_path / "models")
        saved = wb.save("iris", tmp_path / "models", check=ROWS)
        assert saved == tmp_path / "models" / "iris"
    assert files_of(tmp_path / "models") == [
        "iris/1/conversion.json", "iris/1/model.onnx", "iris/config.pbtxt",
    ]  # fmt: skip
    with Workbench(tmp_path / "models", load="all") as wb:
        answer = wb.infer("iris", ROWS)
    assert answer.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(answer[name], array, rtol=1e-4)


def test_the_configuration_names_shapes_and_pins_nothing_to_this_machine(tmp_path: Path) -> None:
    """So Triton guesses no batches, and runs the model on a GPU where it has one."""
    with Workbench(device="cpu") as wb:
        wb.serve(identity(tmp_path / "any.onnx", dims=("n", 4)), "m")
        config = config_of(wb.save("m", tmp_path / "models"))
    assert config.name == "m"
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 0)
    assert [(i.name, list(i.dims)) for i in config.input] == [("x", [-1, 4])]
    assert [(o.name, list(o.dims)) for o in config.output] == [("y", [-1, 4])]
    assert not config.instance_group
    assert not config.HasField("optimization")
    assert not config.default_model_filename


def test_what_the_configuration_says_is_kept(tmp_path: Path) -> None:
    """Batching, instances, parameters, tags, warm-up and labels come along."""
    write_model(
        tmp_path / "models" / "m",
        """
        max_batch_size: 8
        output [{ name: "y" data_type: TYPE_FP32 dims: [4] label_filename: "labels.txt" }]
        input [{ name: "x" data_type: TYPE_FP32 dims: [4] }]
        dynamic_batching { max_queue_delay_microseconds: 500 }
        instance_group [{ count: 2 }]
        optimization { graph { level: -1 } }
        parameters { key: "intra_op_thread_count" value { string_value: "1" } }
        metric_tags { key: "team" value: "a" }
        model_warmup [{ name: "one" batch_size: 1 inputs {
          key: "x" value { data_type: TYPE_FP32 dims: [4] input_data_file: "raw" } } }]
        """,
        "a\nb\nc\nd\n",
    )
    (tmp_path / "models" / "m" / "warmup").mkdir()
    (tmp_path / "models" / "m" / "warmup" / "raw").write_bytes(ROWS[:1].tobytes())
    with Workbench(tmp_path / "models", device="cpu") as wb:
        saved = wb.save("m", tmp_path / "saved")
    assert files_of(saved) == ["1/model.onnx", "config.pbtxt", "labels.txt", "warmup/raw"]
    before, after = read_config(tmp_path / "models" / "m"), read_config(saved)
    # a server tells the preferred size that it takes by itself, as Triton does
    assert before.batching is not None
    before = replace(before, batching=replace(before.batching, preferred=(8,)))
    (sample,) = after.warm_up
    assert sample.inputs["x"].data == saved / "warmup" / "raw"
    assert replace(before, warm_up=()) == replace(after, warm_up=())


@pytest.mark.parametrize(("dims", "kept"), [((3, 8, 8), True), ((-1, 3, 8, 8), False)])
def test_the_format_of_images_is_kept_where_triton_takes_it(
    tmp_path: Path, dims: tuple[int, ...], *, kept: bool
) -> None:
    """Triton refuses a format beside other than three dimensions."""
    shape = ["n" if dim < 0 else dim for dim in dims]
    identity(tmp_path / "models" / "m" / "1" / "model.onnx", dims=shape)
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(
        'input [{ name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: '
        f'{list(dims)} }}] output [{{ name: "y" data_type: TYPE_FP32 dims: {list(dims)} }}]',
        "utf-8",
    )
    with Workbench(tmp_path / "models") as wb:
        config = config_of(wb.save("m", tmp_path / "saved"))
    assert bool(config.input[0].format) == kept


def test_an_ensemble_brings_its_parts(tmp_path: Path, sample_models: Path) -> None:
    """A pipeline is saved with all models of its steps, and serves from there."""
    picture = (sample_models / "digit.png").read_bytes()
    with Workbench(sample_models) as wb:
        saved = wb.save("digits_reader", tmp_path)
        expected = wb.infer("digits_reader", [picture])
    assert saved == tmp_path / "digits_reader"
    parts = ["digits_conv", "digits_label", "digits_pixels", "digits_reader"]
    assert sorted(path.name for path in tmp_path.iterdir()) == parts
    assert (saved / "1").is_dir()  # without which Triton serves no ensemble
    with Workbench(tmp_path) as wb:
        answer = wb.infer("digits_reader", [picture])
    assert list(answer["label"]) == list(expected["label"])


def test_two_versions_of_a_part_are_both_there(tmp_path: Path) -> None:
    """Steps that name versions find them."""
    models = tmp_path / "models"
    write_model(models / "m")
    identity(models / "m" / "2" / "model.onnx", dims=("n", 4))
    (models / "m" / "config.pbtxt").write_text("version_policy { all {} }", "utf-8")
    steps = "".join(
        f'step [{{ model_name: "m" model_version: {version} '
        f'input_map {{ key: "x" value: "{x}" }} output_map {{ key: "y" value: "{y}" }} }}]\n'
        for version, x, y in ((1, "X", "T"), (2, "T", "Y"))
    )
    (models / "both").mkdir()
    (models / "both" / "config.pbtxt").write_text(
        'platform: "ensemble"\n'
        'input [{ name: "X" data_type: TYPE_FP32 dims: [-1, 4] }]\n'
        'output [{ name: "Y" data_type: TYPE_FP32 dims: [-1, 4] }]\n'
        f"ensemble_scheduling {{ {steps} }}",
        "utf-8",
    )
    with Workbench(models) as wb:
        wb.save("both", tmp_path / "saved")
    with Workbench(tmp_path / "saved") as wb:
        np.testing.assert_array_equal(wb.infer("both", ROWS), ROWS)


def test_weights_in_files_of_their_own_come_along(tmp_path: Path) -> None:
    """A model of several files is whole where it was saved."""
    file = scaled(tmp_path / "m.onnx", 2, "n, 4")
    onnx.save(onnx.load(file), file, save_as_external_data=True, size_threshold=0,
              location="weights.bin")  # fmt: skip
    with Workbench() as wb:
        wb.serve(file)
        saved = wb.save("m", tmp_path / "models")
    assert files_of(saved) == ["1/model.onnx", "1/weights.bin", "config.pbtxt"]
    with Workbench(tmp_path / "models") as wb:
        np.testing.assert_array_equal(wb.infer("m", ROWS), 2 * ROWS)


def test_the_version_that_answers_is_saved_or_the_one_that_is_named(tmp_path: Path) -> None:
    """A model keeps its number."""
    models = tmp_path / "models"
    write_model(models / "m", "version_policy { all {} }")
    identity(models / "m" / "3" / "model.onnx", dims=("n", 4))
    with Workbench(models) as wb:
        assert (wb.save("m", tmp_path / "a") / "3" / "model.onnx").is_file()
        assert (wb.save("m", tmp_path / "b", version=1) / "1" / "model.onnx").is_file()
        with pytest.raises(VersionNotFound):
            wb.save("m", tmp_path / "c", version=2)
    with Workbench(tmp_path / "b") as wb:
        wb.infer("m", ROWS, version=1)


def test_a_configuration_that_came_with_a_load_is_written_down(tmp_path: Path) -> None:
    """So what was tried out by ``wb.load(config=...)`` lasts."""
    models = tmp_path / "models"
    write_model(models / "m", "# by hand\nmax_batch_size: 4")
    with Workbench(models) as wb:
        wb.load("m", config={"max_batch_size": 4, "dynamic_batching": {}})
        assert wb.save("m", models) == models / "m"
    assert config_of(models / "m").HasField("dynamic_batching")
    assert (models / "m" / "config.pbtxt.before").read_text("utf-8").startswith("# by hand")


def test_to_save_again_replaces_only_what_it_writes(tmp_path: Path) -> None:
    """A cell may run again, and other files of the folder stay."""
    with Workbench() as wb:
        wb.serve(identity(tmp_path / "a.onnx"), "m")
        saved = wb.save("m", tmp_path / "models")
        (saved / "README.md").write_text("mine", "utf-8")
        (saved / "0").mkdir()
        wb.serve(identity(tmp_path / "b.onnx", "INT64"), "m")
        wb.save("m", tmp_path / "models")
        first = (saved / "config.pbtxt").read_text("utf-8")
        wb.save("m", tmp_path / "models")
    assert (saved / "README.md").read_text("utf-8") == "mine"
    assert (saved / "config.pbtxt").read_text("utf-8") == first
    assert "TYPE_FP32" in (saved / "config.pbtxt.before").read_text("utf-8")
    assert config_of(saved).input[0].data_type == config_of(saved).output[0].data_type
    assert (saved / "1" / "model.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_function_has_no_file(tmp_path: Path) -> None:
    """The error says what to do with one; nothing is written, also if it is part of an ensemble."""
    with Workbench() as wb:

        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def double(x: Any) -> Any:
            return 2 * x

        wb.load("two", config=ensemble_of("double"))
        for name in ("double", "two"):
            with pytest.raises(UsageError, match=r"'double' is a Python function.*workbench pack"):
                wb.save(name, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    """No such model, a file for a folder, the reverse, and a name that no folder can have."""
    (tmp_path / "taken").write_text("a file", "utf-8")
    with Workbench() as wb:
        wb.serve(identity(tmp_path / "m.onnx"), "m")
        wb.serve(identity(tmp_path / "n.onnx"), "a/b")
        with pytest.raises(ModelNotFound):
            wb.save("absent", tmp_path)
        with pytest.raises(UsageError, match="is a file: name a folder, or a file that ends in"):
            wb.save("m", tmp_path / "taken")
        with pytest.raises(UsageError, match=r"would be a folder called as a \.zip file: na"):
            wb.save("m", tmp_path / "m.zip")
        with pytest.raises(UsageError, match="'a/b' has a slash"):
            wb.save("a/b", tmp_path)
        (tmp_path / "x.tar.gz").mkdir()
        with pytest.raises(UsageError, match="is a folder: name the file to write, such as"):
            wb.save("m", tmp_path / "x.tar.gz")
        assert not list(tmp_path.glob("*.part"))
