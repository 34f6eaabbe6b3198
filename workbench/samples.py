"""Heavy synthetic ONNX models, to play with eviction.

Each is a chain of MatMul and Relu over square float32 weights, as many bytes as asked for. The
protobuf is written by hand: onnx would be a big dependency for so little, and it builds the whole
model in memory, while here one matrix at a time goes to the disk. Field numbers are onnx.proto's.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.protobuf_fields import field, field_head, number

SIZE_MIN_NBYTES = 128 * 2**10  # below it, whole matrices can miss the size by more than 2 %
SIZE_MAX_NBYTES = 2000 * 2**20  # protobuf reads no message of 2 GiB, so nothing could load it

_IR_VERSION = 9
_OPSET = 17
_FLOAT = 1  # TensorProto.DataType.FLOAT
_DEPTH_MIN = 4
_MATRIX_NBYTES = 4 * 2**20  # 1024 x 1024 float32

_CONFIG = """\
name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [
  {{
    name: "x"
    data_type: TYPE_FP32
    dims: [-1, {width}]
  }}
]
output [
  {{
    name: "y"
    data_type: TYPE_FP32
    dims: [-1, {width}]
  }}
]
"""


@dataclass(frozen=True)
class _Chain:
    """A model to write: *depth* weights of [*width*, *width*]; *seed* makes it differ."""

    name: str
    depth: int
    width: int
    seed: int

    @property
    def weight_nbytes(self) -> int:
        return 4 * self.width * self.width


def write_models(out: str | Path, count: int = 8, size_nbytes: int = 100 * 2**20) -> list[Path]:
    """Write *count* models of about *size_nbytes* each (within 2 %); return their folders.

    They are out/heavy_0, out/heavy_1, ... in Triton's layout, from `x` [-1, d] to `y` [-1, d],
    float32. The same arguments give the same bytes. A file that is there already is replaced whole.

    Raises ValueError for a *count* below 1, a size out of range, or an *out* that is a file.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    if not SIZE_MIN_NBYTES <= size_nbytes <= SIZE_MAX_NBYTES:
        bounds = f"{SIZE_MIN_NBYTES // 2**10}KiB to {SIZE_MAX_NBYTES // 2**20}MiB"
        raise ValueError(f"a model's size must be {bounds}, not {size_nbytes:,} bytes")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder to write the models in")
    folder.mkdir(parents=True, exist_ok=True)
    depth = max(_DEPTH_MIN, math.ceil(size_nbytes / _MATRIX_NBYTES))
    width = round(math.sqrt(size_nbytes / (4 * depth)))
    return [_write_model(folder, _Chain(f"heavy_{i}", depth, width, seed=i)) for i in range(count)]


def _write_model(out: Path, chain: _Chain) -> Path:
    folder = out / chain.name
    config = _CONFIG.format(name=chain.name, width=chain.width).encode()
    # Beside the folders a part is no model; two runs at once must not share one, hence the id.
    part = out / f".{chain.name}.{os.getpid()}.part"
    _replace(folder / "1" / "model.onnx", part, _model(chain))
    _replace(folder / "config.pbtxt", part, [config])
    return folder


def _replace(path: Path, part: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write *pieces* to *part*, then make it *path*: nobody ever sees half of it there."""
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# -- ModelProto, piece by piece --


def _model(chain: _Chain) -> Iterator[bytes | memoryview]:
    """Give the file's bytes in order; a message's length precedes it, so sizes are summed first."""
    heads = [_tensor_head(chain, f"w{i}") for i in range(chain.depth)]
    rest = _nodes(chain) + field(2, chain.name) + _port(11, "x", chain) + _port(12, "y", chain)
    graph_nbytes = len(rest) + sum(map(len, heads)) + chain.depth * chain.weight_nbytes
    yield number(1, _IR_VERSION) + field(2, "serving-workbench workbench/samples.py")
    yield field(8, field(1, ""), number(2, _OPSET))
    yield field_head(7, graph_nbytes) + rest
    rng = np.random.default_rng(chain.seed)
    for head in heads:
        yield head
        yield _weight(rng, chain.width)


def _weight(rng: np.random.Generator, width: int) -> memoryview:
    weight = rng.standard_normal((width, width), np.float32)
    # Relu drops half of the power and this scale doubles it: deep chains neither fade nor explode.
    weight *= np.float32(math.sqrt(2 / width))
    return weight.astype("<f4", copy=False).data


def _tensor_head(chain: _Chain, name: str) -> bytes:
    """GraphProto.initializer (5), a TensorProto, up to where its raw data begin."""
    shape = number(1, chain.width) * 2
    fields = shape + number(2, _FLOAT) + field(8, name) + field_head(9, chain.weight_nbytes)
    return field_head(5, len(fields) + chain.weight_nbytes) + fields


def _nodes(chain: _Chain) -> bytes:
    """GraphProto.node (1): x -> MatMul, Relu -> ... -> y."""
    nodes = bytearray()
    before = "x"
    for i in range(chain.depth):
        after = "y" if i == chain.depth - 1 else f"h{i}"
        nodes += _node("MatMul", (before, f"w{i}"), f"m{i}") + _node("Relu", (f"m{i}",), after)
        before = after
    return bytes(nodes)


def _node(op: str, inputs: tuple[str, ...], output: str) -> bytes:
    return field(1, *(field(1, name) for name in inputs), field(2, output), field(4, op))


def _port(field_number: int, name: str, chain: _Chain) -> bytes:
    """A graph's input (11) or output (12): ValueInfoProto, float32 [batch, width]."""
    shape = field(2, field(1, field(2, "batch")), field(1, number(1, chain.width)))
    return field(field_number, field(1, name), field(2, field(1, number(1, _FLOAT), shape)))
