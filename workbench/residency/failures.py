"""Failed loads, remembered for some seconds, so that many requests do not repeat a failing load."""

from __future__ import annotations

from msgspec import Struct

from workbench.errors import LoadFailed
from workbench.model import ModelId

_FIRST_S, _LONGEST_S = 1.0, 8.0


class _Failure(Struct, frozen=True):
    error: LoadFailed
    pause_s: float
    until_s: float


class Failures(dict[ModelId, _Failure]):
    """For each model that did not load: the error, and when to try again.

    Used under the residency's lock.
    """

    def add(self, model: ModelId, error: LoadFailed, now_s: float) -> None:
        """Note that a load of *model* failed; each pause is twice the last, up to 8 seconds.

        A failure during a pause does not lengthen it: that load began before the pause.
        """
        last = self.get(model)
        if last and now_s < last.until_s:
            return
        pause_s = min(2 * last.pause_s, _LONGEST_S) if last else _FIRST_S
        self[model] = _Failure(error, pause_s, now_s + pause_s)

    def recall(self, model: ModelId, now_s: float) -> LoadFailed | None:
        """The error for a request for *model*, if it is too soon to try again."""
        failure = self.get(model)
        if failure is None or now_s >= failure.until_s:
            return None
        left_s = failure.until_s - now_s
        return LoadFailed(
            f"{failure.error} (it is not tried again for {left_s:.1f} s, unless loaded by hand)"
        )
