"""A model as a card: what it takes and gives, its state and memory, and how to ask it.

Names, reasons and configurations come from clients and files; all of them are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from workbench.core.status.snapshot import ModelStatus
from workbench.model import Signature, TensorSpec
from workbench.nbytes import show_nbytes
from workbench.tensor import Array
from workbench.views.board import pill, star
from workbench.views.calls import inputs_code
from workbench.views.states import state_words
from workbench.views.table import table_html
from workbench.views.text import aligned
from workbench.views.times import show_seconds

_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px;margin:2px 0 8px"
_SHOWN_CHARS = 100  # characters of an example that is shown whole


@dataclass(frozen=True, slots=True)
class CardValues:
    """The values that the card of a model shows.

    *signature* is ``None`` if nobody knows it, *estimate_nbytes* the memory that a model needs
    that is not loaded (0: unknown), *config* its configuration
    as the members of Triton's ModelConfig, *request* an example of the V2 protocol, *calls* the
    code that sends it, by client, *example* the inputs that the model was served with, if any.
    *report* is a line on its conversion, if it was converted.
    """

    status: ModelStatus
    signature: Signature | None = None
    estimate_nbytes: int = 0
    config: Mapping[str, object] | None = None
    request: Mapping[str, Any] | None = None
    calls: Mapping[str, str] = field(default_factory=dict)
    docs_url: str = ""
    example: Mapping[str, Array] | None = None
    report: str = ""


def card_text(card: CardValues) -> str:
    """The card in lines."""
    state = state_words(card.status)
    why = f": {state.why}" if state.why else ""
    pinned = ", pinned" if card.status.pinned else ""
    lines = [f"{card.status.id.name}{_version(card)}, {state.word}{pinned}{why}"]
    lines += aligned(_tensors(card.signature))
    facts = [
        ("memory", _memory(card)),
        ("requests", _requests(card.status)),
        ("conversion", card.report),
        ("example", _example(card)),
        ("code", f"calls[...] for {', '.join(card.calls)}" if card.calls else ""),
        ("docs", card.docs_url),
    ]
    lines += aligned([row for row in facts if row[1]])
    return "\n".join(lines)


def card_html(card: CardValues) -> str:
    """The card as HTML, with its configuration and the calls folded."""
    status, state = card.status, state_words(card.status)
    name = escape(status.id.name)
    if card.docs_url:
        link = escape(card.docs_url)
        name = f'<a href="{link}" target="_blank" style="color:inherit">{name}</a>'
    facts = [("memory", _memory(card)), ("requests", _requests(status))]
    words = " · ".join(f"{name}: {value}" for name, value in facts if value)
    folded = [_folded(client, code) for client, code in card.calls.items()]
    if card.config is not None:
        folded.append(_folded("Configuration", json.dumps(card.config, indent=1, default=str)))
    return (
        f'<div><b style="font-size:15px">{name}</b>{star(status.pinned)}{_version(card)} '
        f"{pill(state.word, state.shade, state.title)} {escape(state.why)}</div>"
        f"{table_html(_tensors(card.signature))}<div>{escape(words)}</div>"
        f"<div>{escape(card.report)}</div>"
        f"<div><code>{escape(_example(card))}</code></div>{''.join(folded)}"
    )


def _example(card: CardValues) -> str:
    if card.request is None:
        return ""
    code = f"wb[{card.status.id.name!r}]({inputs_code(card.request)})"
    return code if len(code) <= _SHOWN_CHARS else f"{code[: _SHOWN_CHARS - 4]}...)"


def _version(card: CardValues) -> str:
    version = card.status.id.version
    return f", version {version}" if version else ""  # KServe has none


def _memory(card: CardValues) -> str:
    status = card.status
    if status.nbytes:
        run = f", {show_nbytes(status.run_nbytes)} per run" if status.run_nbytes else ""
        where = f" on {status.device}" if status.device else ""
        return f"{show_nbytes(status.nbytes)}{where}{run}"
    if not card.estimate_nbytes:
        return ""
    return f"none; {show_nbytes(card.estimate_nbytes)} at most once it is loaded"


def _requests(status: ModelStatus) -> str:
    requests = status.requests
    if not requests.succeeded + requests.failed:
        return ""
    failed = f", {requests.failed} failed" if requests.failed else ""
    return f"{requests.succeeded} answered{failed}; p50 {show_seconds(requests.p50_s)}"


def _tensors(signature: Signature | None) -> list[tuple[str, str, str, str]]:
    if signature is None:
        return []
    return [
        *(_row("takes", spec) for spec in signature.inputs.values()),
        *(_row("gives", spec) for spec in signature.outputs.values()),
    ]


def _row(verb: str, spec: TensorSpec) -> tuple[str, str, str, str]:
    optional = " (optional)" if spec.optional else ""
    return verb, spec.name, spec.datatype, f"{list(spec.shape)}{optional}"


def _folded(title: str, text: str) -> str:
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<pre style="{_PRE}">{escape(text)}</pre></details>'
    )
