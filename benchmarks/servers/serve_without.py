"""Ours without one of its shortcuts: ``python serve_without.py MODELS PORT PLACE``.

*PLACE* is one of those below, or "nothing".
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from workbench import Workbench
from workbench.codecs import v2, v2_known, v2_known_reply
from workbench.host import linger, short_cut
from workbench.host import round as round_


def _read_whole(_: Any, *request: Any) -> Any:
    return (*v2.decode_request(*request), None)


def _write_whole(self: Any, response: Any) -> Any:
    return v2.encode_response(response, self._form)


def _answer_alone(self: Any, connection: Any, asked: Any) -> None:
    connection.replied(asked, self._short_cut.answer(*asked))


def without(place: str) -> None:
    """Take the *place* out of this process."""
    patches: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "known_text": (v2_known.KnownTexts, "decode", _read_whole),
        "known_reply": (v2_known_reply.KnownReply, "encode", _write_whole),
        "known_head": (short_cut, "head_pieces", lambda _: None),
        "round": (round_.Round, "ask", _answer_alone),
        "linger": (linger.Linger, "replied", lambda _: None),
    }
    if place in patches:
        owner, name, substitute = patches[place]
        setattr(owner, name, substitute)


if __name__ == "__main__":
    models, port, place = sys.argv[1:]
    without(place)
    with Workbench(models, device="cpu", port=int(port), load="all"):
        threading.Event().wait()
