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
from workbench.host import connection, linger
from workbench.host import round as round_


def _read_whole(self: Any, body: Any, header_nbytes: int | None, rules: Any) -> Any:
    decoded = v2.decode_request(self._model, self._version, body, header_nbytes, rules)
    return (*decoded, None)


def _write_whole(self: Any, response: Any) -> Any:
    return v2.encode_response(response, self._form)


def _answer_alone(self: Any, connection: Any, asked: Any) -> None:
    connection.replied(asked, self._short_cut.answer(*asked))


def _end(self: Any) -> None:
    self._is_looking = False
    self.end()


def without(place: str) -> None:
    """Take the *place* out of this process."""
    patches: dict[str, list[tuple[Any, str, Callable[..., Any]]]] = {
        "known_text": [(v2_known.KnownTexts, "decode", _read_whole)],
        "known_reply": [(v2_known_reply.KnownReply, "encode", _write_whole)],
        "known_head": [(connection, "head_pieces", lambda _: None)],
        "round": [(round_.Round, "ask", _answer_alone)],
        "look": [(round_.Round, "_look", _end)],
        "linger": [(linger.Linger, "replied", lambda _: None)],
    }
    for owner, name, substitute in patches.get(place, ()):
        setattr(owner, name, substitute)


if __name__ == "__main__":
    models, port, place = sys.argv[1:]
    without(place)
    with Workbench(models, device="cpu", port=int(port), load="all"):
        threading.Event().wait()
