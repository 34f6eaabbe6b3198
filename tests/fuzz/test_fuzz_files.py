"""Whatever is in a file, an image or a configuration, it is read or refused, and no more."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import Edit, deterministic, edited, edits, refused_or
from PIL import Image

from workbench.annexes.images.decode import decode_images
from workbench.errors import InvalidRequest, LoadFailed
from workbench.model import ImageForm, ModelConfig, TensorSpec
from workbench.repository.config import read_config
from workbench.tensor import DATATYPES, Tensor


def pictures() -> list[bytes]:
    """Small files of each kind."""
    files = []
    ramp = np.arange(7 * 9 * 4, dtype=np.uint8).reshape(7, 9, 4)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        file = io.BytesIO()
        Image.fromarray(ramp).convert(mode).save(file, "PNG")
        files.append(file.getvalue())
    for mode, options in (("L", {}), ("RGB", {"progressive": True}), ("CMYK", {})):
        file = io.BytesIO()
        Image.fromarray(ramp).convert("RGB").convert(mode).save(file, "JPEG", **options)
        files.append(file.getvalue())
    deep = io.BytesIO()
    Image.fromarray(ramp[..., 0].astype(np.uint16) * 257).save(deep, "PNG")
    return [*files, deep.getvalue()]


PICTURES = pictures()
BINARY_PIECES = [bytes([n]) for n in (0, 1, 2, 3, 4, 8, 16, 127, 128, 192, 218, 255)] + [
    b"", b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"acTL", b"eXIf", b"\xff\xd8\xff",
    b"\xff\xda", b"\xff\xc0", b"\xff\xd0", b"\xff\xe1\0\x08Exif\0\0", b"\0\0\0\0",
    b"\x7f\xff\xff\xff", b"\xff" * 9,
]  # fmt: skip
IMAGE_LIMIT_NBYTES = 2**20


@deterministic(500)
@given(
    st.lists(st.tuples(st.sampled_from(PICTURES), edits(BINARY_PIECES)), min_size=1, max_size=2),
    st.sampled_from([(-1, -1, -1, -1), (-1, 5, 4, 3), (1, 7, 9, -1), (-1, 3, 5, 4)]),
    st.sampled_from(["NHWC", "NCHW"]),
    st.sampled_from(["FP32", "UINT8", "INT8", "FP16"]),
)
def test_images(
    files: list[tuple[bytes, list[Edit]]], shape: tuple[int, ...], layout: str, datatype: str
) -> None:
    """Nearly any PNG or JPEG becomes pixels within the limit, or is refused."""
    spec = TensorSpec("x", datatype, shape)
    tensor = Tensor.of([edited(*file) for file in files], "BYTES")
    form = ImageForm(layout)
    made = refused_or(lambda: decode_images("x", tensor, spec, form, IMAGE_LIMIT_NBYTES))
    if isinstance(made, Tensor):
        assert made.array.dtype == DATATYPES[datatype].dtype
        assert spec.accepts(made.shape)
        assert made.array.nbytes <= IMAGE_LIMIT_NBYTES
    else:
        assert isinstance(made, InvalidRequest)


CONFIG = b"""
name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, 8 ] },
        { name: "z" data_type: TYPE_STRING dims: 1 optional: true } ]
output [ { name: "y" data_type: TYPE_INT64 dims: [ 10 ] label_filename: "labels.txt" } ]
version_policy { specific { versions: [ 1, 3 ] } }
default_model_filename: "model.onnx"
parameters { key: "image_order" value { string_value: "RGB" } }
parameters { key: "image_scale" value { string_value: "0.5" } }
"""
TEXT_PIECES = [
    b"", b"", b'"', b"'", b"{", b"}", b"[", b"]", b"<", b">", b":", b",", b"#", b"\n", b"\\",
    b"\\377", b"\\ud800", b"\\U00110000", b"\0", b"\xff", b"-", b"-1", b"0", b"1e400", b"nan",
    b"0x7f", b"1.5", b"TYPE_BF16", b"TYPE_INVALID", b"FORMAT_NONE", b"name", b"input", b"..",
    b"instance_group [ { } ]", b"optimization { }", b"latest { num_versions: 2 }", b"../x",
    b"/", b"99999999999999999999", b"1" * 5000, b"\x0c", b"[a.b]",
    b"[type.googleapis.com/inference.ModelConfig]",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:invalid escape:DeprecationWarning")  # protobuf's own
@deterministic(400)
@given(changes=edits(TEXT_PIECES))
def test_configurations(tmp_path_factory: pytest.TempPathFactory, changes: list[Edit]) -> None:
    """Nearly any config.pbtxt configures a model, or is refused by name."""
    folder: Path = tmp_path_factory.getbasetemp() / "m"
    folder.mkdir(exist_ok=True)
    (folder / "labels.txt").write_text("a\nb\n", "utf-8")
    (folder / "config.pbtxt").write_bytes(edited(CONFIG, changes))
    made = refused_or(lambda: read_config(folder))
    assert isinstance(made, ModelConfig | LoadFailed)
    if isinstance(made, ModelConfig):
        assert all(math.prod(spec.shape) for spec in (*made.inputs, *made.outputs))
