"""The sample models are whole, small, described truly, and as good as their README says."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

SAMPLES = Path(__file__).parent.parent / "sample_models"
FLOORS = {"digits": 0.96, "digits_conv": 0.975, "wine": 0.95, "diabetes": 0.4}
PARTS = {"digits_pixels": 18, "digits_label": 17}  # of the ensemble, and their opsets
CLASSES = {"digits": 10, "digits_conv": 10, "wine": 3}

KINDS = {
    onnx.TensorProto.FLOAT: "FP32",
    onnx.TensorProto.UINT8: "UINT8",
    onnx.TensorProto.STRING: "STRING",
}

Port = tuple[str, str, list[int]]  # name, type, dims

every_model = pytest.mark.parametrize("name", FLOORS)


def model_score(root: Path, name: str) -> float:
    """Accuracy, or R2 for diabetes, of a model under *root* on its held-out rows."""
    session = onnxruntime.InferenceSession(
        root / name / "1/model.onnx", providers=["CPUExecutionProvider"]
    )
    (source,) = session.get_inputs()
    held_out = np.load(root / "held_out.npz")
    data = name.removesuffix("_conv")
    x, y = held_out[f"{data}_x"], held_out[f"{data}_y"]
    (answers,) = session.run(None, {source.name: x.reshape(-1, *source.shape[1:])})
    if name in CLASSES:
        return float((answers.argmax(axis=1) == y).mean())
    return float(1 - np.square(answers[:, 0] - y).mean() / y.var())


def config_ports(text: str) -> list[Port]:
    """Names, types and dims in config.pbtxt, inputs first."""
    port = r'name: "(\w+)"\s+data_type: TYPE_(\w+)\s+dims: \[([-\d, ]+)\]'
    return [
        (name, kind, [int(dim) for dim in dims.split(",")])
        for name, kind, dims in re.findall(port, text)
    ]


def model_ports(model: onnx.ModelProto) -> list[Port]:
    """Names, types and dims in the graph, inputs first; the batch is -1."""
    return [
        (port.name, kind, [dim.dim_value or -1 for dim in port.type.tensor_type.shape.dim])
        for port in (*model.graph.input, *model.graph.output)
        for kind in [KINDS[port.type.tensor_type.elem_type]]
    ]


@every_model
def test_files(name: str) -> None:
    """Each model is under 300 kB, and passes ONNX's checker as opset 17, IR version 9."""
    path = SAMPLES / name / "1/model.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert path.stat().st_size < 300_000
    assert model.ir_version == 9
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert model.producer_name == "serving-workbench sample_models/make.py"


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    """What the ensemble adds is small, passes the checker, and is described as it is."""
    path = SAMPLES / name / "1/model.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert path.stat().st_size < 1000
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", PARTS[name])]
    assert config_ports((path.parents[1] / "config.pbtxt").read_text()) == model_ports(model)


def test_the_picture() -> None:
    """digit.png is the first of the held-out rows, dark on light."""
    pixels = np.asarray(Image.open(SAMPLES / "digit.png"), np.float32)
    assert pixels.shape == (32, 32)
    ink = (255 - pixels).reshape(8, 4, 8, 4).mean((1, 3)) * 16 / 255
    np.testing.assert_allclose(
        ink.ravel(), np.load(SAMPLES / "held_out.npz")["digits_x"][0], atol=0.05
    )


@every_model
def test_config(name: str) -> None:
    """config.pbtxt gives the folder's name and what the graph itself takes and returns."""
    text = (SAMPLES / name / "config.pbtxt").read_text("utf-8")
    model = onnx.load(SAMPLES / name / "1/model.onnx")
    assert text.startswith(
        f'name: "{name}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 0\ninput ['
    )
    assert config_ports(text) == model_ports(model)
    batches = {port.type.tensor_type.shape.dim[0].dim_param for port in model.graph.input}
    assert batches == {"batch"}


@every_model
def test_labels(name: str) -> None:
    """A classifier's output names a label file with a line for each class."""
    labelled = 'label_filename: "labels.txt"' in (SAMPLES / name / "config.pbtxt").read_text()
    labels = SAMPLES / name / "labels.txt"
    assert labelled == labels.exists() == (name in CLASSES)
    if labelled:
        assert len(set(labels.read_text("utf-8").splitlines())) == CLASSES[name]


def test_held_out() -> None:
    """The held-out rows are typed as the models take them, and at least 400 are digits."""
    held_out = np.load(SAMPLES / "held_out.npz")
    kinds = {key: (array.ndim, array.dtype.name) for key, array in held_out.items()}
    assert kinds == {
        "digits_x": (2, "float32"),
        "digits_y": (1, "int64"),
        "wine_x": (2, "float32"),
        "wine_y": (1, "int64"),
        "diabetes_x": (2, "float32"),
        "diabetes_y": (1, "float32"),
    }
    assert len(held_out["digits_x"]) == len(held_out["digits_y"]) >= 400


@every_model
def test_score(name: str) -> None:
    """Each model keeps its score on rows it was not trained on, in ONNX Runtime itself."""
    assert model_score(SAMPLES, name) >= FLOORS[name]


def test_readme_scores() -> None:
    """README's table says what the committed models score."""
    text = (SAMPLES / "README.md").read_text("utf-8")
    said = dict(re.findall(r"^\| `(\w+)` .*?(?:accuracy|R²) ([\d.]+)", text, re.MULTILINE))
    assert said.keys() == FLOORS.keys()
    for name, score in said.items():
        assert float(score) == pytest.approx(model_score(SAMPLES, name), abs=0.005)


def test_make_again(tmp_path: Path) -> None:
    """make.py writes the same descriptions, labels and held-out rows, and models as good.

    The convolutional net learns for a tenth of the time, and is nearly as good then.
    """
    pytest.importorskip("sklearn", reason="scikit-learn, of the extra `samples`, trains them")
    make = [sys.executable, SAMPLES / "make.py", "--out", tmp_path, "--epochs", "3"]
    subprocess.run(make, check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(made) == 18
    for path in made:
        if path.suffix in {".pbtxt", ".txt"}:
            assert (tmp_path / path).read_bytes() == (SAMPLES / path).read_bytes()
    again, committed = np.load(tmp_path / "held_out.npz"), np.load(SAMPLES / "held_out.npz")
    for key, array in committed.items():
        np.testing.assert_array_equal(again[key], array)
    for name, floor in (FLOORS | {"digits_conv": 0.85}).items():
        assert model_score(tmp_path, name) >= floor
