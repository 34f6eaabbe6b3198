"""What a run takes beside its model, by the size of its inputs: learned from runs; pure."""

from __future__ import annotations

_SAMPLES = 3  # of a size, of which the least counts: whatever else happens only adds
_FAR = 64  # times as much as was measured: what is fixed in a run would count so often


class Activations:
    """Of one loaded model. Sizes are told apart by powers of two; racing updates only lose one."""

    __slots__ = ("_seen", "most_nbytes")

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[int, int]]] = {}  # inputs and peaks, by their power
        self.most_nbytes = 0

    def wants(self, inputs_nbytes: int) -> bool:
        """Whether another measurement of that size would teach something."""
        return len(self._seen.get(inputs_nbytes.bit_length(), ())) < _SAMPLES

    def observe(self, inputs_nbytes: int, peak_nbytes: int) -> None:
        """A run on *inputs_nbytes* took *peak_nbytes* at most."""
        samples = self._seen.get(inputs_nbytes.bit_length(), [])
        kept = [*samples, (inputs_nbytes, max(0, peak_nbytes))][-_SAMPLES:]
        self._seen = {**self._seen, inputs_nbytes.bit_length(): kept}
        self.most_nbytes = max(_least(samples)[1] for samples in self._seen.values())

    def expected_nbytes(self, inputs_nbytes: int) -> int | None:
        """What a run on *inputs_nbytes* will take; ``None`` if nothing near was measured.

        As much for each byte as the nearest size that was measured, a larger one if there is.
        """
        if not self._seen:
            return None
        power = inputs_nbytes.bit_length()
        nearest = min((p for p in self._seen if p >= power), default=max(self._seen))
        given_nbytes, peak_nbytes = _least(self._seen[nearest])
        if inputs_nbytes > _FAR * given_nbytes:
            return None
        return peak_nbytes * inputs_nbytes // max(1, given_nbytes)


def _least(samples: list[tuple[int, int]]) -> tuple[int, int]:
    """The sample that took the least for each byte of its inputs."""
    return min(samples, key=lambda sample: sample[1] / max(1, sample[0]))
