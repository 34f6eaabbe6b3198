"""Images that Python gives, as the contents of files."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench import Workbench, connect
from workbench.client.pictures import image_files

TEXTS = {"x": ("BYTES", [-1])}
PIXELS = np.arange(4 * 5 * 4, dtype=np.uint8).reshape(4, 5, 4)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_images_of_pillow(mode: str) -> None:
    """An image of Pillow becomes a PNG of the same pixels and the same mode."""
    image = Image.fromarray(PIXELS[..., :3])
    image = image.convert("L").convert("I").convert(mode) if mode == "I;16" else image.convert(mode)
    files: Any = image_files([image, image])
    for file in files:
        read = Image.open(BytesIO(file))
        assert read.mode == mode
        assert np.array_equal(np.asarray(read), np.asarray(image))


def test_paths_and_contents(tmp_path: Path) -> None:
    """Paths are read, and contents may be of any type of bytes; one of them is a list of one."""
    path = tmp_path / "a.png"
    path.write_bytes(b"file")
    for value in (path, str(path), b"file", bytearray(b"file"), memoryview(b"file")):
        assert image_files(value) == [b"file"]
        assert image_files((value, b"other")) == [b"file", b"other"]


@pytest.mark.parametrize(
    ("shape", "mode", "given", "got"),
    [
        ([-1, -1, -1, 3], "RGB", 1, (1, 2, 5, 3)),
        ([-1, -1, -1, 3], "RGB", 2, (2, 2, 5, 3)),
        ([-1, 3, -1, -1], "RGB", 1, (1, 3, 2, 5)),
        ([-1, 3, -1, -1], "RGB", 2, (2, 3, 2, 5)),
        ([-1, 1, -1, -1], "L", 1, (1, 1, 2, 5)),
        ([-1, -1, -1, 1], "L", 2, (2, 2, 5, 1)),
        ([-1, -1, -1, 3], "P", 1, (1, 2, 5, 3)),
        ([-1, -1, -1, 1], "1", 1, (1, 2, 5, 1)),
        ([3, -1, -1], "RGB", 1, (3, 2, 5)),
        ([-1, -1, 3], "RGB", 1, (2, 5, 3)),
        ([-1, -1, -1], "L", 2, (2, 2, 5)),
        ([-1, -1], "L", 1, (2, 5)),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_images_for_functions(
    shape: list[int], mode: str, given: int, got: tuple[int, ...], *, elsewhere: bool
) -> None:
    """A function gets the pixels, red first, with the channels where it declares them."""
    red = Image.new("RGB", (5, 2), (255, 0, 0)).convert(mode)
    seen: list[Any] = []

    def keep(x: Any) -> Any:
        seen.append(x)
        return x

    with Workbench() as wb:
        tensor = ("FP32", shape)
        wb.register(keep, name="keep", inputs={"x": tensor}, outputs={"y": tensor})
        with connect(wb.url) as connection:
            asked: Any = connection if elsewhere else wb
            asked.infer("keep", red if given == 1 else [red] * given)
    (array,) = seen
    assert array.shape == got
    assert array.dtype == np.float32
    pixels = np.asarray(red.convert("L" if mode in "L1" else "RGB"))
    layout = pixels.transpose(2, 0, 1) if 3 in got[:2] else pixels
    assert np.array_equal(array.reshape(given, *layout.shape)[-1], layout)


def test_images_for_bytes() -> None:
    """A function of files takes images of Pillow; a text is no path there."""
    image = Image.fromarray(PIXELS[..., :3])

    def sizes(image: list[bytes]) -> list[int]:
        return [Image.open(BytesIO(each)).width for each in image]

    with Workbench(device="cpu") as wb:
        wb.register(sizes)
        assert wb.infer("sizes", image).tolist() == [5]
        assert wb.infer("sizes", [image, image.rotate(90, expand=True)]).tolist() == [5, 4]
        wb.register(lambda x: x, name="same", inputs=TEXTS, outputs=TEXTS)
        assert wb.infer("same", [__file__]).tolist() == [__file__]


@pytest.mark.parametrize(
    "value", [PIXELS, 3, [], [[1, 2], [3, 4]], [b"file", 3], PIXELS.tolist(), None]
)
def test_no_files(value: object) -> None:
    """Numbers are no files, nor is a list that has anything else in it."""
    assert image_files(value) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("nowhere.png", r"^the file 'nowhere.png': No such file or directory$"),
        ("x" * 5000, r"^the file 'x{80}': File name too long$"),
        ("a\0b", r"^the file 'a\\x00b': embedded null byte$"),
        (Image.new("CMYK", (1, 1)), r"^cannot write mode CMYK as PNG: pass image.convert\('RGB'\)"),
    ],
)
def test_what_is_no_image(value: object, told: str) -> None:
    """What cannot be read or written is said in one line."""
    with pytest.raises(ValueError, match=told):
        image_files(value)
