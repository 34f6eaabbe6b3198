"""Image files of every kind, and what OpenCV reads in them."""

import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
from PIL import Image

# bits of a pixel by PNG's colour type, at 8 bits a channel
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
          (1, 0, 2, 1)]  # fmt: skip


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


PALETTE = chunk(b"PLTE", bytes(range(48)))
GREY_KEY, COLOUR_KEY = chunk(b"tRNS", b"\0\1"), chunk(b"tRNS", b"\0\1\0\2\0\3")
# of each kind: bits a channel, colour type, further chunks
KINDS: dict[str, tuple[int, int, bytes]] = {
    "grey 1": (1, 0, b""),
    "grey 2": (2, 0, b""),
    "grey 4": (4, 0, b""),
    "grey 8": (8, 0, b""),
    "grey 16": (16, 0, b""),
    "grey 1 and a key": (1, 0, GREY_KEY),
    "grey 8 and a key": (8, 0, GREY_KEY),
    "grey 16 and a key": (16, 0, GREY_KEY),
    "colour 8": (8, 2, b""),
    "colour 16": (16, 2, b""),
    "colour 8 and a key": (8, 2, COLOUR_KEY),
    "colour 16 and a key": (16, 2, COLOUR_KEY),
    "colour 8 and a key of 16": (8, 2, chunk(b"tRNS", b"\1\1\1\2\1\3")),
    "palette 4": (4, 3, PALETTE),
    "palette 4 and alphas": (4, 3, PALETTE + chunk(b"tRNS", b"\0\5\6")),
    "palette 4 and one clear": (4, 3, PALETTE + chunk(b"tRNS", b"\xff\0\xff")),
    "grey 8 and alpha": (8, 4, b""),
    "grey 16 and alpha": (16, 4, b""),
    "colour 8 and alpha": (8, 6, b""),
    "colour 16 and alpha": (16, 6, b""),
}


def png(kind: str, height: int, width: int, *, seed: int = 0, interlaced: bool = False) -> bytes:
    """A PNG of random pixels; some of them are of the key's colour."""
    depth, colour, extra = KINDS[kind]
    bits = depth * _CHANNELS[colour]
    random = np.random.default_rng(seed)
    if bits < 8:
        passes = [random.integers(0, 256, (height, (width * bits + 7) // 8), np.uint8)]
    else:
        pixels = random.integers(0, 256, (height, width, bits // 8), np.uint8)
        if bits % 3 == 0:
            pixels[::2, ::2] = [1, 2, 3] if depth == 8 else [0, 1, 0, 2, 0, 3]
        passes = [pixels[y::dy, x::dx] for y, x, dy, dx in _ADAM7] if interlaced else [pixels]
    rows = [row.tobytes() for part in passes if part.size for row in part]
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", header), extra, chunk(b"IDAT", data), chunk(b"IEND", b"")]
    )


def jpeg(mode: str, height: int, width: int, *, seed: int = 0, **options: Any) -> bytes:
    """A JPEG in Pillow's *mode*, with something smooth in one half and noise in the other."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    pixels[: height // 2] = np.linspace(0, 255, width, dtype=np.uint8)[None, :, None]
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def opencv(data: bytes) -> Any:
    """What OpenCV reads, as [height, width, channels]; ``None`` if it cannot."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    return pixels if pixels is None or pixels.ndim == 3 else pixels[..., None]
