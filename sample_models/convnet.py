"""A small convolutional net for 8x8 pictures, trained in plain numpy.

conv 3x3 (1 -> 16), relu, conv 3x3 (16 -> 32), relu, max pool 2x2, dense 96, relu, dense 10,
softmax. Pictures are float32 [n, 1, 8, 8] with values 0..1. Parameters have the shapes that ONNX's
Conv and Gemm ask for.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int64]

BATCH = 64
EPOCHS = 30
LEARNING_RATE = 2e-3


class Net(NamedTuple):
    """The parameters, float32; their gradients have the same shapes and use the same type."""

    conv1_w: Array  # [16, 1, 3, 3]
    conv1_b: Array  # [16]
    conv2_w: Array  # [32, 16, 3, 3]
    conv2_b: Array  # [32]
    dense1_w: Array  # [512, 96]
    dense1_b: Array  # [96]
    dense2_w: Array  # [96, 10]
    dense2_b: Array  # [10]


def new_net(rng: np.random.Generator) -> Net:
    """Draw weights scaled for relu (He et al., 2015); biases are zero."""

    def layer(fan_in: int, width: int, *shape: int) -> tuple[Array, Array]:
        weight = rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / fan_in))
        return weight, np.zeros(width, np.float32)

    return Net(
        *layer(9, 16, 16, 1, 3, 3),
        *layer(144, 32, 32, 16, 3, 3),
        *layer(512, 96, 512, 96),
        *layer(96, 10, 96, 10),
    )


def columns(x: Array) -> Array:
    """Lay out each 3x3 window of *x* [n, c, h, w], zero-padded by one: [n, c * 9, h * w]."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * 9, h * w)


def uncolumns(cols: Array) -> Array:
    """Transpose `columns`: [n, c * 9, 64], each value added back to its pixel, [n, c, 8, 8]."""
    parts = cols.reshape(len(cols), -1, 3, 3, 8, 8)
    padded = np.zeros((*parts.shape[:2], 10, 10), np.float32)
    for row in range(3):
        for col in range(3):
            padded[:, :, row : row + 8, col : col + 8] += parts[:, :, row, col]
    return padded[:, :, 1:-1, 1:-1]


def conv_relu(cols: Array, weight: Array, bias: Array) -> Array:
    """Convolve: columns [n, c * 9, 64] -> activations [n, out, 8, 8]."""
    out: Array = weight.reshape(len(weight), -1) @ cols + bias[:, None]
    return out.clip(min=0).reshape(len(cols), -1, 8, 8)


def conv_gradients(d_out: Array, cols: Array) -> tuple[Array, Array]:
    """Give a convolution's weight and bias their share of *d_out* [n, out, 64]."""
    d_weight: Array = np.tensordot(d_out, cols, axes=((0, 2), (0, 2)))
    return d_weight.reshape(len(d_weight), -1, 3, 3), d_out.sum(axis=(0, 2))


def softmax(logits: Array) -> Array:
    """Turn each row of *logits* [n, classes] into probabilities."""
    powers: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    total: Array = powers.sum(axis=1, keepdims=True)
    return powers / total


def gradients(net: Net, x: Array, y: Classes) -> Net:
    """Differentiate the mean cross entropy over pictures *x* [n, 1, 8, 8] of classes *y* [n]."""
    n = len(x)
    cols1 = columns(x)
    conv1 = conv_relu(cols1, net.conv1_w, net.conv1_b)
    cols2 = columns(conv1)
    squares = conv_relu(cols2, net.conv2_w, net.conv2_b).reshape(n, 32, 4, 2, 4, 2)
    pooled = squares.max(axis=(3, 5), keepdims=True)
    flat = pooled.reshape(n, 512)
    hidden = (flat @ net.dense1_w + net.dense1_b).clip(min=0)

    d_logits = softmax(hidden @ net.dense2_w + net.dense2_b)
    d_logits[np.arange(n), y] -= 1
    d_logits /= n
    d_hidden = d_logits @ net.dense2_w.T * (hidden > 0)
    d_pooled = (d_hidden @ net.dense1_w.T).reshape(pooled.shape)
    # On blank paper a square's four are equal: they share the gradient, or it counts four times.
    winners = ((squares == pooled) & (squares > 0)).astype(np.float32)
    d_squares = winners * (d_pooled / winners.sum(axis=(3, 5), keepdims=True).clip(min=1))
    d_conv2 = d_squares.reshape(n, 32, 64)
    d_conv1 = uncolumns(net.conv2_w.reshape(32, 144).T @ d_conv2) * (conv1 > 0)
    return Net(
        *conv_gradients(d_conv1.reshape(n, 16, 64), cols1),
        *conv_gradients(d_conv2, cols2),
        *(flat.T @ d_hidden, d_hidden.sum(axis=0)),
        *(hidden.T @ d_logits, d_logits.sum(axis=0)),
    )


class Adam:
    """Adam (Kingma and Ba, 2015): steps scaled by running means of the slope and of its square."""

    def __init__(self, net: Net) -> None:
        self._means = [np.zeros_like(parameter) for parameter in net]
        self._squares = [np.zeros_like(parameter) for parameter in net]
        self._steps = 0

    def step(self, net: Net, slopes: Net, learning_rate: float) -> None:
        """Move the arrays of *net* in place, against *slopes*."""
        self._steps += 1
        rate = learning_rate * math.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps)
        state = zip(net, slopes, self._means, self._squares, strict=True)
        for parameter, slope, mean, square in state:
            mean[...] = 0.9 * mean + 0.1 * slope
            square[...] = 0.999 * square + 0.001 * slope * slope
            parameter[...] -= rate * mean / (np.sqrt(square) + 1e-8)


def train(x: Array, y: Classes, seed: int, epochs: int = EPOCHS) -> Net:
    """Fit a net to pictures *x* [n, 1, 8, 8] of classes *y* [n]; a batch moves up to one pixel."""
    rng = np.random.default_rng(seed)
    net = new_net(rng)
    adam = Adam(net)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for epoch in range(epochs):
        rate = LEARNING_RATE * (1 - epoch / epochs)
        for rows in np.array_split(rng.permutation(len(x)), len(x) // BATCH):
            down, right = rng.integers(0, 3, 2)
            moved = padded[rows, :, down : down + 8, right : right + 8]
            adam.step(net, gradients(net, moved, y[rows]), rate)
    return net
