"""What SageMaker's clients send and accept, by media type <-> requests and responses."""

from workbench.codecs.payloads.formats import (
    PLAIN,
    READ,
    Limits,
    Payload,
    PayloadForm,
    Received,
    decode,
    encode,
    read_arrays,
)
from workbench.codecs.payloads.media import choose, parse_media_type, preferred

__all__ = [
    "PLAIN",
    "READ",
    "Limits",
    "Payload",
    "PayloadForm",
    "Received",
    "choose",
    "decode",
    "encode",
    "parse_media_type",
    "preferred",
    "read_arrays",
]
