"""Image files as inputs, over HTTP as OpenVINO Model Server takes them, and from Python."""

import io
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from messages import error_of, one
from onnx_models import identity
from PIL import Image

from workbench import Workbench
from workbench.errors import InvalidRequest

MODELS: dict[str, tuple[Any, ...]] = {
    "nhwc": (1, 2, 4, 3),
    "any_size": ("n", "h", "w", 3),
    "flat": ("n", 4),
}
PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10  # red, green, blue


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server whose models give back what they take."""
    root: Path = tmp_path_factory.mktemp("images")
    for name, dims in MODELS.items():
        identity(root / name / "model.onnx", dims=dims)
    with (
        Workbench(root) as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        yield client


def png(pixels: np.ndarray = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def send(client: httpx.Client, model: str, *files: bytes, said: bool = True) -> httpx.Response:
    """The answer to *files* as binary data; OpenVINO's clients leave its size un*said*."""
    data = b"".join(struct.pack("<I", len(file)) + file for file in files)
    entry: dict[str, Any] = {"name": "x", "shape": [len(files)], "datatype": "BYTES"}
    if said:
        entry["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": [entry]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return client.post(f"/v2/models/{model}/infer", content=head + data, headers=headers)


def pixels_of(response: httpx.Response) -> np.ndarray:
    assert response.status_code == 200, response.text
    (output,) = response.json()["outputs"]
    return np.array(output["data"]).reshape(output["shape"])


@pytest.mark.parametrize("said", [True, False])
def test_an_image_is_blue_green_red_and_unscaled(client: httpx.Client, said: bool) -> None:
    """A file becomes the model's tensor, with or without its size in the JSON."""
    for _ in range(3):  # also once the model is known to be brief
        taken = pixels_of(send(client, "nhwc", png(), said=said))
        assert np.array_equal(taken, PIXELS[None, :, :, ::-1])


def test_tensors_as_ever(client: httpx.Client) -> None:
    """A model that takes images takes its tensors too."""
    body = one(PIXELS.ravel().tolist(), [1, 2, 4, 3])
    assert np.array_equal(pixels_of(client.post("/v2/models/nhwc/infer", json=body)), PIXELS[None])


@pytest.mark.parametrize(
    ("model", "files", "status", "told"),
    [
        ("nhwc", [b"no image"], 400, "neither PNG nor JPEG"),
        ("nhwc", [png(), png()], 400, "'x'"),
        ("nhwc", [png()[:40]], 400, "image 0 cannot be decoded: broken PNG file"),
        ("nhwc", [png(PIXELS[:, :, 0])], 400, "3 channels, image 0 has 1"),
        ("any_size", [png(np.zeros((9999, 9999, 3), np.uint8))], 413, "more than 256.0 MiB"),
        ("flat", [png()], 400, "takes FP32, got BYTES"),
    ],
)  # fmt: skip
def test_what_is_refused(
    client: httpx.Client, model: str, files: list[bytes], status: int, told: str
) -> None:
    """What is no image, or not one for this model, is the client's mistake, and says which."""
    response = send(client, model, *files)
    assert (response.status_code, told in error_of(response)) == (status, True), response.text


def test_a_resize_without_opencv(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, an image of another size is refused with the cure; one of its size is not.

    With the extra, it is resized.
    """
    larger = png(np.repeat(PIXELS, 2, axis=0))
    assert pixels_of(send(client, "nhwc", larger)).shape == (1, 2, 4, 3)
    monkeypatch.setitem(sys.modules, "cv2", None)
    refused = send(client, "nhwc", larger)
    assert refused.status_code == 501
    assert error_of(refused).endswith("pip install 'serving-workbench[images]'")
    assert np.array_equal(pixels_of(send(client, "nhwc", png())), PIXELS[None, :, :, ::-1])


def test_images_from_python(sample_models: Path) -> None:
    """A model that takes images takes a file: its path, its bytes, Pillow's image, or a list."""
    path = sample_models / "digit.png"
    file = path.read_bytes()
    with Workbench(sample_models, device="cpu") as wb:
        for given in (file, path, str(path), Image.open(path)):
            assert wb.infer("digits_reader", given)["label"].tolist() == ["2"]
        pixels = np.asarray(Image.open(path).convert("L"))  # the rows of a grey image
        assert pixels.ndim == 2
        assert wb.infer("digits_reader", pixels)["label"].tolist() == ["2"]
        assert wb.infer("digits_reader", {"image": [file, file]})["label"].tolist() == ["2"] * 2
        with pytest.raises(InvalidRequest, match="image 0 cannot be decoded"):
            wb.infer("digits_reader", b"no picture")
        with pytest.raises(InvalidRequest, match=r"'nowhere.png': No such file or directory"):
            wb.infer("digits_reader", "nowhere.png")
