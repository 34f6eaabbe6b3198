"""Heavy sample models: valid, of the size asked for, streamed, and replaced whole."""

from pathlib import Path
from unittest.mock import Mock

import memory_taken
import numpy as np
import onnx
import onnxruntime
import pytest

from workbench import samples
from workbench.samples import SIZE_MAX_NBYTES, SIZE_MIN_NBYTES, write_models

MIB = 2**20


def files_in(folder: Path) -> list[str]:
    """Every file under *folder*, hidden ones too, as relative paths."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    "size_nbytes",
    [SIZE_MIN_NBYTES, SIZE_MIN_NBYTES + 2345, MIB, 5 * MIB // 2, 17 * MIB, 33 * MIB + 1],
)
def test_size(tmp_path: Path, size_nbytes: int) -> None:
    """A model's file is within 2 % of the size asked for, and passes ONNX's checker."""
    (folder,) = write_models(tmp_path, 1, size_nbytes)
    path = folder / "1/model.onnx"
    assert path.stat().st_size == pytest.approx(size_nbytes, rel=0.02)
    onnx.checker.check_model(path, full_check=True)


def test_layout(tmp_path: Path) -> None:
    """Each model is a folder with config.pbtxt and 1/model.onnx, and nothing else is left."""
    folders = write_models(str(tmp_path / "new" / "models"), 3, SIZE_MIN_NBYTES)
    assert folders == [tmp_path / "new" / "models" / f"heavy_{i}" for i in range(3)]
    assert files_in(tmp_path / "new" / "models") == [
        f"heavy_{i}/{name}" for i in range(3) for name in ("1/model.onnx", "config.pbtxt")
    ]


def test_runs(tmp_path: Path) -> None:
    """ONNX Runtime loads a model and answers with numbers that neither fade nor explode."""
    (folder,) = write_models(tmp_path, 1, 33 * MIB)
    session = onnxruntime.InferenceSession(
        folder / "1/model.onnx", providers=["CPUExecutionProvider"]
    )
    (source,), (sink,) = session.get_inputs(), session.get_outputs()
    width = source.shape[1]
    assert (source.name, source.shape) == ("x", ["batch", width])
    assert (sink.name, sink.shape) == ("y", ["batch", width])
    assert f"dims: [-1, {width}]" in (folder / "config.pbtxt").read_text("utf-8")
    x = np.random.default_rng(0).standard_normal((3, width), np.float32)
    (y,) = session.run(None, {"x": x})
    assert y.shape == x.shape
    assert np.isfinite(y).all()
    assert 0.1 < np.sqrt(np.square(y).mean()) < 10


def test_differ(tmp_path: Path) -> None:
    """Two models have different weights, and the same arguments give the same bytes again."""
    first, second = write_models(tmp_path / "a", 2, SIZE_MIN_NBYTES)
    again, _ = write_models(tmp_path / "b", 2, SIZE_MIN_NBYTES)
    one, other = (
        onnx.numpy_helper.to_array(onnx.load(folder / "1/model.onnx").graph.initializer[0])
        for folder in (first, second)
    )
    assert not np.array_equal(one, other)
    assert (first / "1/model.onnx").read_bytes() == (again / "1/model.onnx").read_bytes()


def test_memory(tmp_path: Path) -> None:
    """Writing holds less than three weight tensors, however big the model is."""
    with memory_taken.less_than(3 * 4 * MIB):
        write_models(tmp_path, 1, 64 * MIB)


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is interrupted leaves old models as they were, and nothing of new ones."""
    (folder,) = write_models(tmp_path / "old", 1, SIZE_MIN_NBYTES)
    before = (folder / "1/model.onnx").read_bytes()
    draw = samples._weight

    def interrupted(rng: np.random.Generator, width: int) -> memoryview:
        monkeypatch.setattr(samples, "_weight", Mock(side_effect=KeyboardInterrupt))
        return draw(rng, width)

    for out in (tmp_path / "old", tmp_path / "new"):
        monkeypatch.setattr(samples, "_weight", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_models(out, 2, MIB)
    assert files_in(tmp_path / "old") == ["heavy_0/1/model.onnx", "heavy_0/config.pbtxt"]
    assert (folder / "1/model.onnx").read_bytes() == before
    assert list((tmp_path / "new").iterdir()) == []


def test_overwrite(tmp_path: Path) -> None:
    """A model of the same name is replaced; whatever else is in the folder stays."""
    (tmp_path / "mine.txt").write_text("kept")
    write_models(tmp_path, 1, SIZE_MIN_NBYTES)
    (folder,) = write_models(tmp_path, 1, MIB)
    assert (folder / "1/model.onnx").stat().st_size == pytest.approx(MIB, rel=0.02)
    assert "dims: [-1, 256]" in (folder / "config.pbtxt").read_text("utf-8")
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("count", "size_nbytes", "line"),
    [
        (0, MIB, "count must be at least 1, not 0"),
        (1, SIZE_MIN_NBYTES - 1, "size must be 128KiB to 2000MiB, not 131,071 bytes"),
        (1, SIZE_MAX_NBYTES + 1, "size must be 128KiB to 2000MiB, not 2,097,152,001 bytes"),
    ],
)
def test_refused(tmp_path: Path, count: int, size_nbytes: int, line: str) -> None:
    """No models, or models too small or too big, are refused before anything is written."""
    with pytest.raises(ValueError, match=line):
        write_models(tmp_path / "out", count, size_nbytes)
    assert not (tmp_path / "out").exists()


def test_out_is_a_file(tmp_path: Path) -> None:
    """A file is no folder to write models in."""
    out = tmp_path / "models"
    out.write_text("a file")
    with pytest.raises(ValueError, match="models is a file; name a folder"):
        write_models(out, 1, SIZE_MIN_NBYTES)
