"""Objects that are saved as ONNX, for other servers, with the report of the conversion."""

import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servables import of_matrix

from workbench import Workbench
from workbench.annexes.conversion.convert import convert
from workbench.errors import UsageError
from workbench.saving import save

pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

X, Y = load_iris(return_X_y=True)
SOME = X[::7]
MODEL = of_matrix(LogisticRegression(max_iter=500).fit(X, Y), X)


def registered(wb: Workbench, name: str) -> None:
    """Serve the object as a function that calls it, as ``wb.serve`` does."""
    inputs, outputs = {"X": ("FP64", [-1, 4])}, {"label": ("INT64", [-1])}

    def label(X: Any) -> Any:  # noqa: N803
        return MODEL.call(X=X)["label"]

    wb.register(label, name=name, inputs=inputs, outputs=outputs)


def files_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_an_object_is_saved_as_onnx(tmp_path: Path) -> None:
    """It is converted with evidence, and the folder has the model, its report and configuration."""
    with Workbench(device="cpu") as wb:
        registered(wb, "iris")
        write = partial(convert, MODEL, SOME)
        saved = save(wb._core, "iris", tmp_path / "models", None, {"iris": write})
        archive = save(wb._core, "iris", tmp_path / "iris.tar.gz", None, {"iris": write})
    assert files_of(saved) == ["1/conversion.json", "1/model.onnx", "config.pbtxt"]
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == ["1/conversion.json", "1/model.onnx", "config.pbtxt"]
    report = (saved / "1" / "conversion.json").read_bytes()
    assert json.loads(report)["given"] == len(SOME)
    config = (saved / "config.pbtxt").read_text()
    assert 'backend: "onnxruntime"' in config
    assert "TYPE_FP32" in config
    with Workbench(tmp_path / "models", device="cpu") as wb:
        answer = wb.infer("iris", X)
        again = wb.save("iris", tmp_path / "again")
    assert np.array_equal(answer["label"], MODEL.call(X=X)["label"])
    assert (again / "1" / "conversion.json").read_bytes() == report


def test_an_object_without_rows_to_check(tmp_path: Path) -> None:
    """One line says that check= is needed, and nothing is written; nor for a wrong conversion."""
    with Workbench(device="cpu") as wb:
        registered(wb, "iris")
        with pytest.raises(UsageError, match="needs check=, rows like those it will be asked with"):
            save(wb._core, "iris", tmp_path / "m", None, {"iris": partial(convert, MODEL, None)})
        exact = partial(convert, MODEL, SOME, tolerance=0)
        with pytest.raises(UsageError, match="is not converted to ONNX: row 0 as given"):
            save(wb._core, "iris", tmp_path / "m", None, {"iris": exact})
        with pytest.raises(UsageError, match="is a Python function, which has no file"):
            save(wb._core, "iris", tmp_path / "m")
    assert not (tmp_path / "m").exists()
