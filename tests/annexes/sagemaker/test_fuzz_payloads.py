"""Whatever comes as any media type, it is read or refused in our own words."""

import io

import numpy as np
import pytest
from fuzz.mutations import PIECES, Edit, deterministic, edited, edits, refused_or
from hypothesis import given
from hypothesis import strategies as st

from workbench.annexes.sagemaker.payloads.formats import PayloadRequest
from workbench.model import Signature, TensorSpec
from workbench.tensor import DATATYPES

MAX_NBYTES = 2**16
TRITON = "application/vnd.sagemaker-triton.binary+json"
MORE = [
    b";", b"q=", b":", b"1:2", b"PK\3\4", b"(", b")", b"descr", b"|O", b"<f8", b"<U99", b"10**9",
]  # fmt: skip


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([[1.0, 2.0]]))
    return file.getvalue()


def npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


BODIES = {
    "": b'{"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}',
    "application/json": b"[[1, 2], [3, 4]]",
    "application/jsonlines": b'[1, 2]\n{"x": [3, 4]}\n',
    "text/csv; header=present": b'a,b\n1,"2"\n',
    "application/x-npy": npy(),
    "application/x-npz": npz(x=[[1.0, 2.0]]),
    f"{TRITON};json-header-size=2": b"{}",
}


@pytest.mark.parametrize("content_type", BODIES)
@deterministic(300)
@given(
    changes=edits(PIECES + MORE),
    of_type=edits(MORE),
    datatype=st.sampled_from(sorted(DATATYPES)),
    shape=st.sampled_from([(-1, 2), (-1,), (), (-1, -1), (2,), (-1, 1, 2)]),
)
def test_bodies(
    content_type: str,
    changes: list[Edit],
    of_type: list[Edit],
    datatype: str,
    shape: tuple[int, ...],
) -> None:
    """A body is an input of the model's datatype, or is refused."""
    signature = Signature(
        "fake", {"x": TensorSpec("x", datatype, shape)}, {"y": TensorSpec("y", "FP32", (1,))}
    )
    named = edited(content_type.encode(), of_type).decode("latin-1") if of_type else content_type
    body = edited(BODIES[content_type], changes)
    asked = PayloadRequest("m", named, "*/*;q=0.5, text/csv", MAX_NBYTES)
    read = refused_or(lambda: asked.read(body, signature))
    if isinstance(read, tuple):
        for tensor in read[0].inputs.values():
            assert tensor.datatype == datatype or "inputs" in named
            assert tensor.array.dtype == DATATYPES[tensor.datatype].dtype
