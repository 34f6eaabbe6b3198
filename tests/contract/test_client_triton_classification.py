"""Tritonclient's class_count against a live server, with real labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import given
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException


def text(element: bytes | str) -> str:
    """A class as it comes as binary data and as JSON."""
    return element.decode() if isinstance(element, bytes) else element


@pytest.mark.parametrize("binary", [True, False])
def test_triton_classifies(
    triton: Any, sample_models: Path, held_out: dict[str, Any], binary: bool
) -> None:
    """The best classes come best first as value:index:label, of all there are without batches."""
    images = held_out["digits_x"][:1]
    wanted = InferRequestedOutput("probabilities", binary_data=binary, class_count=3)
    result = triton.infer("digits", [given(images, name="pixels")], outputs=[wanted])
    output = result.get_output("probabilities")
    assert (output["datatype"], output["shape"]) == ("BYTES", [3])
    plain = triton.infer("digits", [given(images, name="pixels")]).as_numpy("probabilities")
    labels = (sample_models / "digits" / "labels.txt").read_text("utf-8").split("\n")
    (row,), classes = plain, result.as_numpy("probabilities")
    best = np.argsort(-row)[:3]
    assert [text(each) for each in classes] == [f"{row[i]:f}:{i}:{labels[i]}" for i in best]


def test_triton_classifies_one_of_two(triton: Any) -> None:
    """Of two outputs one may come as classes and the other as it is; without labels, no labels."""
    pair = [given(np.array([[1, 2]], np.float32), name=name) for name in "ab"]
    wanted = [InferRequestedOutput("sum", class_count=1), InferRequestedOutput("difference")]
    result = triton.infer("two", pair, outputs=wanted)
    assert [text(each) for each in result.as_numpy("sum").ravel()] == ["4.000000:1"]
    assert result.as_numpy("difference").tolist() == [[0, 0]]


def test_triton_classifies_no_text(triton: Any) -> None:
    """An output of BYTES has no best classes, which is said."""
    tensor = InferInput("x", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"a"], object))
    wanted = InferRequestedOutput("y", class_count=1)
    with pytest.raises(InferenceServerException, match="BYTES") as caught:
        triton.infer("echo_bytes", [tensor], outputs=[wanted])
    assert caught.value.status() == "400"
