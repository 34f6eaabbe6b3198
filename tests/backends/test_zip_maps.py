"""Classifiers as skl2onnx writes them by default: their probabilities are a list of maps."""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import written

from workbench import Workbench
from workbench.backends.onnx.header.file import COLUMNS, read_onnx_file
from workbench.backends.onnx.zip_maps import with_tensors
from workbench.errors import LoadFailed, UsageError

skl2onnx = pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")

from sklearn.datasets import load_iris  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

X, Y = load_iris(return_X_y=True)
X32 = X.astype(np.float32)
LABELS = {"whole": Y, "texts": np.array(["setosa", "versicolor", "virginica"])[Y], "two": Y > 1}


def classifier(labels: Any = Y) -> Any:
    return LogisticRegression(max_iter=500).fit(X, labels)


def zipped(path: Path, labels: Any = Y) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = skl2onnx.to_onnx(classifier(labels), X32[:1])
    assert made.graph.output[1].type.HasField("sequence_type")
    path.write_bytes(made.SerializeToString())
    return path


def is_right(answer: Any, labels: Any = Y) -> bool:
    model = classifier(labels)
    close = np.abs(answer["output_probability"] - model.predict_proba(X)) < 1e-5
    given = answer["output_label"].astype(labels.dtype)
    return bool(close.all()) and np.array_equal(given, model.predict(X))


@pytest.mark.parametrize("tier", ["plain", "prepared", "mapped"])
@pytest.mark.parametrize("kind", LABELS)
def test_a_classifier_of_a_repository(tmp_path: Path, kind: str, tier: str) -> None:
    """The output of a ZipMap is a tensor of one column a class, in metadata and in answers."""
    zipped(tmp_path / "m" / "1" / "model.onnx", LABELS[kind])
    config = f'parameters {{ key: "tier" value {{ string_value: "{tier}" }} }}'
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    with Workbench(tmp_path, device="cpu") as wb:
        count = len(set(LABELS[kind]))
        assert wb["m"].outputs["output_probability"].shape == (-1, count)
        assert wb["m"].outputs["output_probability"].datatype == "FP32"
        assert is_right(wb.infer("m", X32), LABELS[kind])
        wb.unload("m")
        assert is_right(wb.infer("m", X32), LABELS[kind])


def test_a_classifier_that_comes_with_a_load(tmp_path: Path) -> None:
    """A file of a load is taken apart as one of a folder is."""
    content = zipped(tmp_path / "model.onnx").read_bytes()
    with Workbench(device="cpu") as wb:
        wb.load("m", config={}, files={"1/model.onnx": content})
        assert is_right(wb.infer("m", X32))


def test_a_classifier_is_saved_with_tensors(tmp_path: Path) -> None:
    """What is saved or packed for other servers has tensors too, as its configuration says."""
    zipped(tmp_path / "models" / "m" / "1" / "model.onnx")
    with Workbench(tmp_path / "models", device="cpu") as wb:
        saved, packed = wb.save("m", tmp_path / "saved"), tmp_path / "packed.onnx"
        with tarfile.open(wb.save("m", tmp_path / "m.tar.gz")) as archive:
            found = archive.extractfile("1/model.onnx")  # Python 3.11.0 has no safe extractall
            assert found is not None
            packed.write_bytes(found.read())
    for path in (saved / "1" / "model.onnx", packed):
        file = read_onnx_file(path)
        assert not file.zip_maps
        assert [(o.kind, o.dims) for o in file.outputs][1] == ("tensor", ("rows", 3))
        onnx.checker.check_model(onnx.load(path))


def test_a_classifier_in_an_artifact(tmp_path: Path) -> None:
    """SageMaker's container contract loads one, too."""
    import requests

    zipped(tmp_path / "model" / "1" / "model.onnx")
    with Workbench(device="cpu", port=0) as wb:
        told = {"model_name": "m", "url": str(tmp_path / "model")}
        assert requests.post(f"{wb.url}/models", json=told, timeout=30).status_code == 200
        asked = {"instances": X32.tolist()}
        answer = requests.post(f"{wb.url}/models/m/invoke", json=asked, timeout=30)
        assert answer.status_code == 200, answer.text
        labels = [each["output_label"] for each in answer.json()["predictions"]]
        assert labels == classifier().predict(X).tolist()


def test_other_sequences_are_refused(tmp_path: Path) -> None:
    """A model that gives another sequence is refused with what to do."""
    graph = "(float[n] x) => (seq(float) parts) { parts = SplitToSequence(x) }"
    path = written(tmp_path / "m" / "1" / "model.onnx", graph)
    told = "'parts' .*is a sequence, which no protocol carries: end the model with ConcatFromSeq"
    with Workbench(tmp_path, device="cpu") as wb, pytest.raises(LoadFailed, match=told):
        wb.load("m")
    with pytest.raises(UsageError, match=told):
        with_tensors(path.read_bytes())
    with pytest.raises(UsageError, match="are no ONNX model"):
        with_tensors(b"no model")


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], ["a"], "no list", None])
def test_names_of_columns_in_a_file(tmp_path: Path, names: Any) -> None:
    """A file can name the columns of its matrix; names that do not fit it are left out."""
    path = zipped(tmp_path / "m" / "1" / "model.onnx")
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"other": "1", COLUMNS: json.dumps(names)})
    onnx.save(model, path)
    with Workbench(tmp_path, device="cpu") as wb:
        wb.load("m")
        wanted = ("a", "b", "c", "d") if isinstance(names, list) and len(names) == 4 else ()
        assert wb._core.status.signature("m").columns == wanted
