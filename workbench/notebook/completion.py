"""Tab behind ``%workbench``: our words alone, without those that IPython would put between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

Complete = Callable[[str, str], list[str]]
"""From a line and its last word, which is not whole yet, to the words that it may become."""

_COMMAND = re.compile(r"\s*(?:[^\W\d]\w*\s*=\s*)?(%{0,2}workbench\s.*)")  # a value may be kept


def register(shell: Any, complete: Complete) -> None:
    """Complete the lines of *shell* that are commands of ours by *complete*."""

    def matcher(context: CompletionContext) -> dict[str, Any]:
        found = _COMMAND.fullmatch(context.text_until_cursor)
        if found is None:
            return {"completions": []}
        line = found[1]
        word = "" if line[-1].isspace() else line.split()[-1]
        matches = complete(line, word)
        return {
            "completions": [SimpleCompletion(each, type="magic") for each in matches],
            "matched_fragment": word,
            "suppress": bool(matches),
        }

    unregister(shell)
    typed: Any = context_matcher()(matcher)
    typed.is_workbench = True
    shell.Completer.custom_matchers.append(typed)


def unregister(shell: Any) -> None:
    """Leave all lines to IPython again."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [each for each in matchers if not hasattr(each, "is_workbench")]
