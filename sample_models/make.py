"""Train the sample models and write them, with the data held out to score them.

And an ensemble around one of them, which takes pictures as they are, and answers with a word.

    python sample_models/make.py [--out DIR]

Writes Triton's repository layout. Needs numpy, scikit-learn and onnx (the extra `samples`) and
less than a minute. Seeds are fixed: the same library versions on the same kind of processor write
the same bytes.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import convnet
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from PIL import Image
from sklearn.datasets import (  # type: ignore[import-untyped]
    load_diabetes,
    load_digits,
    load_wine,
)
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from sklearn.neural_network import MLPClassifier, MLPRegressor  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

OPSET = 17
RESIZE_OPSET = 18  # the first that can look at all pixels when it makes a picture smaller
IR_VERSION = 9
HELD_OUT_FRACTION = 0.25
TYPES = {
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.UINT8: "TYPE_UINT8",
    TensorProto.STRING: "TYPE_STRING",
}
SEED = 0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Split:
    """A data set, cut once: rows to train on, and rows that no model is trained on.

    *x* is float32 [n, features]; *y* is [n], int64 for classes, float32 for numbers. *labels* are
    the classes' names, empty for numbers.
    """

    train_x: Array
    held_x: Array
    train_y: Array
    held_y: Array
    labels: Sequence[str]

    @classmethod
    def of(cls, data: Any) -> Self:
        """Cut scikit-learn's *data*; each class, or quarter of the answers, keeps its share."""
        labels = [str(name) for name in getattr(data, "target_names", ())]
        y = data.target.astype(np.int64 if labels else np.float32)
        strata = y if labels else np.searchsorted(np.quantile(y, (0.25, 0.5, 0.75)), y)
        train_x, held_x, train_y, held_y = train_test_split(
            data.data.astype(np.float32),
            y,
            test_size=HELD_OUT_FRACTION,
            random_state=SEED,
            stratify=strata,
        )
        return cls(train_x, held_x, train_y, held_y, labels)


class Graph:
    """An ONNX graph of float32 layers in a row, from one input to one output."""

    def __init__(self, input_name: str, *shape: int) -> None:
        self._input_name = input_name
        self._input_shape = shape
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, op: str, *constants: npt.ArrayLike, **attributes: Any) -> Self:
        """Append an operator: its first input is the layer before, the others are *constants*."""
        before = self._nodes[-1].output[0] if self._nodes else self._input_name
        inputs = [before, *map(self._constant, constants)]
        outputs = [f"layer{len(self._nodes)}"]
        self._nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return self

    def add_mlp(self, fitted: Any) -> Self:
        """Append a *fitted* scikit-learn MLP: relu between its layers, nothing after the last."""
        *hidden, last = zip(fitted.coefs_, fitted.intercepts_, strict=True)
        for weight, bias in hidden:
            self.add("Gemm", weight, bias).add("Relu")
        return self.add("Gemm", *last)

    def model(self, name: str, output_name: str, width: int, doc: str) -> onnx.ModelProto:
        """Finish and check the model; its output is the last layer, [batch, *width*]."""
        self._nodes[-1].output[0] = output_name
        graph = helper.make_graph(
            self._nodes,
            name,
            [_value(self._input_name, *self._input_shape)],
            [_value(output_name, width)],
            self._constants,
        )
        return _model(graph, doc, OPSET)

    def _constant(self, value: npt.ArrayLike) -> str:
        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name


def _model(graph: onnx.GraphProto, doc: str, opset: int) -> onnx.ModelProto:
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=IR_VERSION,
        producer_name="serving-workbench sample_models/make.py",
        doc_string=doc,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _value(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])


def digits(split: Split) -> onnx.ModelProto:
    """Train an MLP, 64 pixels -> 256 -> 64 -> 10 classes."""
    mlp = MLPClassifier(hidden_layer_sizes=(256, 64), max_iter=400, random_state=SEED)
    mlp.fit(split.train_x / 16, split.train_y)
    graph = Graph("pixels", 64).add("Div", 16).add_mlp(mlp).add("Softmax", axis=-1)
    return graph.model("digits", "probabilities", 10, "Which digit? 8x8 pixels, 0..16. An MLP.")


def digits_conv(split: Split, epochs: int) -> onnx.ModelProto:
    """Train the convolutional net of convnet.py on the same digits, as pictures."""
    pictures = (split.train_x.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    net = convnet.train(pictures, split.train_y, SEED, epochs)
    graph = Graph("pixels", 1, 8, 8).add("Div", 16)
    graph.add("Conv", net.conv1_w, net.conv1_b, pads=[1, 1, 1, 1]).add("Relu")
    graph.add("Conv", net.conv2_w, net.conv2_b, pads=[1, 1, 1, 1]).add("Relu")
    graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).add("Flatten")
    graph.add("Gemm", net.dense1_w, net.dense1_b).add("Relu")
    graph.add("Gemm", net.dense2_w, net.dense2_b).add("Softmax", axis=-1)
    doc = "Which digit? A picture of 8x8 pixels, 0..16. A convolutional net."
    return graph.model("digits_conv", "probabilities", 10, doc)


def wine(split: Split) -> onnx.ModelProto:
    """Train logistic regression on standardised features."""
    scaler = StandardScaler().fit(split.train_x)
    fitted = LogisticRegression(max_iter=1000)
    fitted.fit(scaler.transform(split.train_x), split.train_y)
    graph = Graph("features", 13).add("Sub", scaler.mean_).add("Div", scaler.scale_)
    graph.add("Gemm", fitted.coef_.T, fitted.intercept_).add("Softmax", axis=-1)
    doc = "Which cultivar? 13 chemical measurements. Logistic regression."
    return graph.model("wine", "probabilities", 3, doc)


def diabetes(split: Split) -> onnx.ModelProto:
    """Train a small MLP on standardised features and a standardised answer."""
    scaler = StandardScaler().fit(split.train_x)
    mean, spread = split.train_y.mean(), split.train_y.std()
    # 331 patients are few: only with this much decay does it do better than ridge regression.
    mlp = MLPRegressor(
        hidden_layer_sizes=(32,), alpha=10, solver="lbfgs", max_iter=2000, random_state=SEED
    )
    mlp.fit(scaler.transform(split.train_x), (split.train_y - mean) / spread)
    graph = Graph("features", 10).add("Sub", scaler.mean_).add("Div", scaler.scale_)
    graph.add_mlp(mlp).add("Mul", spread).add("Add", mean)
    doc = "Disease progression a year on, from 10 measurements. An MLP."
    return graph.model("diabetes", "progression", 1, doc)


def digits_pixels() -> onnx.ModelProto:
    """Make of a grey picture, dark on light, what the data set has: the ink of 4x4 blocks."""
    node, constant = helper.make_node, numpy_helper.from_array
    nodes = [
        node("Cast", ["image"], ["grey"], to=TensorProto.FLOAT),
        node("Transpose", ["grey"], ["first"], perm=[0, 3, 1, 2]),
        node(
            "Resize", ["first", "", "", "size"], ["small"], mode="linear", antialias=1, axes=[2, 3]
        ),
        node("AveragePool", ["small"], ["blocks"], kernel_shape=[4, 4], strides=[4, 4]),
        node("Sub", ["white", "blocks"], ["ink"]),
        node("Mul", ["ink", "scale"], ["pixels"]),
    ]
    constants = [
        constant(np.array([32, 32], np.int64), "size"),
        constant(np.array(255, np.float32), "white"),
        constant(np.array(16 / 255, np.float32), "scale"),
    ]
    image = helper.make_tensor_value_info(
        "image", TensorProto.UINT8, ["batch", "height", "width", 1]
    )
    doc = "Grey pictures of digits, dark on light, of any size, to 8x8 pixels, 0..16."
    graph = helper.make_graph(
        nodes, "digits_pixels", [image], [_value("pixels", 1, 8, 8)], constants
    )
    return _model(graph, doc, RESIZE_OPSET)


def digits_label(labels: Sequence[str]) -> onnx.ModelProto:
    """Make the name of the likeliest class of probabilities."""
    nodes = [
        helper.make_node("ArgMax", ["probabilities"], ["class"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "class"], ["label"]),
    ]
    names = helper.make_tensor(
        "names", TensorProto.STRING, [len(labels)], [label.encode() for label in labels]
    )
    label = helper.make_tensor_value_info("label", TensorProto.STRING, ["batch"])
    probabilities = _value("probabilities", len(labels))
    graph = helper.make_graph(nodes, "digits_label", [probabilities], [label], [names])
    return _model(graph, "The name of the likeliest digit.", OPSET)


def picture(pixels: Array) -> Image.Image:
    """Draw 64 *pixels*, 0..16, as ink on 32x32 pixels of paper."""
    grey = (255 - pixels.reshape(8, 8) * 255 / 16).round().astype(np.uint8)
    return Image.fromarray(np.kron(grey, np.ones((4, 4), np.uint8)))


ENSEMBLE = """\
name: "digits_reader"
platform: "ensemble"
max_batch_size: 0
input [
  {
    name: "image"
    data_type: TYPE_UINT8
    dims: [-1, -1, -1, 1]
  }
]
output [
  {
    name: "label"
    data_type: TYPE_STRING
    dims: [-1]
  },
  {
    name: "probabilities"
    data_type: TYPE_FP32
    dims: [-1, 10]
  }
]
ensemble_scheduling {
  step [
    {
      model_name: "digits_pixels"
      model_version: -1
      input_map { key: "image" value: "image" }
      output_map { key: "pixels" value: "pixels" }
    },
    {
      model_name: "digits_conv"
      model_version: -1
      input_map { key: "pixels" value: "pixels" }
      output_map { key: "probabilities" value: "probabilities" }
    },
    {
      model_name: "digits_label"
      model_version: -1
      input_map { key: "probabilities" value: "probabilities" }
      output_map { key: "label" value: "label" }
    }
  ]
}
"""


def dims(value: onnx.ValueInfoProto) -> list[int]:
    """Read the shape of an input or output; -1 stands for the batch."""
    return [dim.dim_value or -1 for dim in value.type.tensor_type.shape.dim]


def config(model: onnx.ModelProto, labelled: bool) -> str:
    """Describe *model* as config.pbtxt; max_batch_size 0: dims include the batch."""
    graph = model.graph
    text = f'name: "{graph.name}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 0\n'
    for kind, value in (("input", graph.input[0]), ("output", graph.output[0])):
        kind_of_data = TYPES[value.type.tensor_type.elem_type]
        lines = [f'name: "{value.name}"', f"data_type: {kind_of_data}", f"dims: {dims(value)}"]
        if labelled and kind == "output":
            lines.append('label_filename: "labels.txt"')
        text += f"{kind} [\n  {{\n" + "".join(f"    {line}\n" for line in lines) + "  }\n]\n"
    return text


def write(out: Path, model: onnx.ModelProto, labels: Sequence[str]) -> int:
    """Write the folder of *model* under *out*; return the size of model.onnx in bytes."""
    folder = out / model.graph.name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config(model, bool(labels)), "utf-8", newline="\n")
    if labels:
        (folder / "labels.txt").write_text("\n".join([*labels, ""]), "utf-8", newline="\n")
    return (folder / "1/model.onnx").write_bytes(model.SerializeToString(deterministic=True))


def score(model: onnx.ModelProto, split: Split) -> str:
    """Run *model* on the held-out rows: accuracy, or R2 for a regressor."""
    source = model.graph.input[0]
    feed = {source.name: split.held_x.reshape(dims(source))}
    answers = cast("list[Array]", ReferenceEvaluator(model).run(None, feed))[0]
    if split.labels:
        return f"accuracy {(answers.argmax(axis=1) == split.held_y).mean():.4f}"
    return f"R2 {1 - np.square(answers[:, 0] - split.held_y).mean() / split.held_y.var():.4f}"


def make_all(out: Path, epochs: int) -> None:
    """Train, score and write everything under *out*; print one line for each model.

    The convolutional net sees the digits *epochs* times.
    """
    numbers, wines = Split.of(load_digits()), Split.of(load_wine())
    patients = Split.of(load_diabetes(scaled=False))
    conv = partial(digits_conv, epochs=epochs)
    jobs = ((digits, numbers), (conv, numbers), (wine, wines), (diabetes, patients))
    print(f"{'model':<12} {'bytes':>7} {'held out':>8}  score")
    for train, split in jobs:
        model = train(split)
        nbytes = write(out, model, split.labels)
        rows = len(split.held_y)
        print(f"{model.graph.name:<12} {nbytes:>7} {rows:>8}  {score(model, split)}", flush=True)
    for model in (digits_pixels(), digits_label(numbers.labels)):
        print(f"{model.graph.name:<12} {write(out, model, ()):>7}")
    (out / "digits_reader").mkdir(exist_ok=True)
    (out / "digits_reader/config.pbtxt").write_text(ENSEMBLE, "utf-8", newline="\n")
    arrays: dict[str, Any] = {}
    for name, split in (("digits", numbers), ("wine", wines), ("diabetes", patients)):
        arrays |= {f"{name}_x": split.held_x, f"{name}_y": split.held_y}
    np.savez_compressed(out / "held_out.npz", **arrays)
    picture(numbers.held_x[0]).save(out / "digit.png")


def main() -> None:
    """Read the command line and make them all."""
    parser = argparse.ArgumentParser(description="Train and write the sample models.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="default: here")
    parser.add_argument(
        "--epochs", type=int, default=convnet.EPOCHS, help="of digits_conv; default: %(default)s"
    )
    asked = parser.parse_args()
    # Matrices this small are slower on several threads, and their sums would depend on how many.
    with threadpool_limits(1):
        make_all(asked.out, asked.epochs)


if __name__ == "__main__":
    main()
