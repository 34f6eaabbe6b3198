"""Archives of artifacts, without an endpoint."""

import gzip
import io
import tarfile
from pathlib import Path

from workbench.contracts.sagemaker.endpoint.unpack import unpack


def test_padding_is_no_header(tmp_path: Path) -> None:
    """An archive that tar fills up to a large block is unpacked, whatever follows its last file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("model.onnx")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(packed.getvalue() + bytes(2**21)))
    assert unpack(archive, tmp_path / "model") == 3
    assert (tmp_path / "model" / "model.onnx").read_bytes() == b"abc"
