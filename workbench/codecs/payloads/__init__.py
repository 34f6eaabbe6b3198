"""What SageMaker's clients send and accept, by media type <-> requests and responses."""

from workbench.codecs.payloads.formats import (
    PLAIN,
    READ,
    Decoder,
    Limits,
    Payload,
    PayloadForm,
    encode,
    read_arrays,
)
from workbench.codecs.payloads.media import choose, parse_media_type, preferred

__all__ = [
    "PLAIN",
    "READ",
    "Decoder",
    "Limits",
    "Payload",
    "PayloadForm",
    "choose",
    "encode",
    "parse_media_type",
    "preferred",
    "read_arrays",
]
