"""Conversions of modules of PyTorch, which are also asked in other sizes: ``make frameworks``."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in this environment: make frameworks")

from servables import of_module  # noqa: E402

from workbench import Workbench  # noqa: E402
from workbench.annexes.conversion.convert import convert  # noqa: E402
from workbench.errors import InvalidRequest, UsageError  # noqa: E402

torch.manual_seed(0)
FREE = {"x": (-1, -1)}


class Small(torch.nn.Module):
    """Batches above a limit go another way."""

    def __init__(self, limit: int = 4) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Any) -> Any:
        return x * 2 if x.shape[0] <= self.limit else x * 3


class Even(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.shape[0] % 2 == 0 else x * 3


class Halves(torch.nn.Module):
    """Lengths above a limit go another way."""

    def forward(self, x: Any) -> Any:
        return x.sum(1) if x.shape[1] <= 10 else x.sum(1) / 2


class Window(torch.nn.Module):
    """It keeps the last steps."""

    def forward(self, x: Any) -> Any:
        return (x[:, -16:] if x.shape[1] > 16 else x).sum(1)


class Chunks(torch.nn.Module):
    """The same sum, in parts where there are many rows."""

    def forward(self, x: Any) -> Any:
        return torch.cat([c * 2 for c in x.split(32)]) if x.shape[0] > 32 else x * 2


class Largest(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.max(1).values, x.argmax(1)


class Top(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return tuple(x.topk(2, dim=1))


class Padded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)

    def forward(self, x: Any, pad: Any) -> Any:
        return self.encoder(x, src_key_padding_mask=pad)


class Ids(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)
        self.out = torch.nn.Linear(8, 3)

    def forward(self, ids: Any) -> Any:
        return self.out(self.words(ids).mean(1))


class Forbids(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.tanh(x).masked_fill(x < 0, -10_000.0)


class States(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: Any) -> Any:
        out, (hidden, cell) = self.lstm(x)
        return out, hidden, cell


WRONG = {
    "batches above 4": (Small(), torch.randn(3, 3), None),
    "batches above 1000": (Small(1000), torch.randn(3, 3), None),
    "even batches": (Even(), torch.randn(4, 3), None),
    "lengths above 10": (Halves(), torch.randn(3, 5), FREE),
    "lengths above 16": (Window(), torch.randn(3, 8), FREE),
    "NaN through max": (Largest(), torch.randn(8, 4), None),
    "NaN through an LSTM": (States(), torch.randn(3, 5, 4), {"x": (-1, -1, 4)}),
    "NaN through topk": (Top(), torch.randn(8, 4), None),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_module_that_goes_another_way_is_refused(tmp_path: Path, kind: str) -> None:
    """A module that looks at sizes, or at NaN, is refused with the row and both answers."""
    module, check, shapes = WRONG[kind]
    with pytest.raises(UsageError, match=r"is not converted to ONNX: row \d+ .*: the object answ"):
        convert(of_module(module, check, shapes), check, tmp_path / "model.onnx")


PAD = torch.arange(6)[None] >= torch.tensor([6, 4, 2, 5])[:, None]
RIGHT = {
    "layers": (
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()),
        torch.randn(9, 4),
        None,
    ),
    "large batches in parts": (Chunks(), torch.randn(4, 3), None),
    "ids": (Ids(), torch.randint(0, 50, (6, 5)), {"ids": (-1, -1)}),
    "forbidden": (Forbids(), torch.randn(8, 4), None),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_a_module_that_is_right_for_all_sizes(tmp_path: Path, kind: str) -> None:
    """A conversion is compared in batches and lengths that the caller's rows do not have."""
    module, check, shapes = RIGHT[kind]
    report = convert(of_module(module, check, shapes), check, tmp_path / "model.onnx")
    assert report.largest <= 1e-4
    assert report.rows > 1000
    assert (tmp_path / "conversion.json").exists()
    onnx.checker.check_model(tmp_path / "model.onnx")


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of nested tensors
def test_padding(tmp_path: Path) -> None:
    """A transformer with padding is converted right or not at all."""
    check = torch.randn(4, 6, 8), PAD
    servable, path = of_module(Padded(), check, {"x": (-1, 6, 8), "pad": (-1, 6)}), tmp_path / "m"
    try:
        report = convert(servable, check, path)
    except UsageError as refused:
        assert "is not converted to ONNX: row " in str(refused) or "cannot conv" in str(refused)  # noqa: PT017
    else:
        assert report.largest <= 1e-4


def test_negative_ids_are_refused(tmp_path: Path) -> None:
    """PyTorch has no word before the first, and ONNX would take the last one."""
    check = torch.randint(0, 50, (6, 5))
    convert(of_module(Ids(), check, {"ids": (-1, -1)}), check, tmp_path / "model.onnx")
    with Workbench(device="cpu") as wb:
        wb.serve(tmp_path / "model.onnx", "m")
        assert wb.infer("m", np.ones((2, 9), np.int64)).shape == (2, 3)
        with pytest.raises(InvalidRequest, match="input 'ids' has a negative number, which the en"):
            wb.infer("m", np.array([[1, -1]]))


def test_weights_beside_the_model(tmp_path: Path) -> None:
    """Large weights are in a file of their own, and the report beside both."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 200_000), torch.nn.Linear(200_000, 2))
    check = torch.randn(2, 4)
    convert(of_module(net, check), check, tmp_path / "model.onnx")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["model.onnx"] < 100_000
    assert sizes["model.onnx.data"] > 5_000_000
    assert "conversion.json" in sizes
