"""What a run takes beside its model, by the size of its inputs: learned from runs; pure."""

from __future__ import annotations

import math

_SAMPLES = 3  # of a size, of which the least counts: whatever else happens only adds
_FAR = 64  # times as much as was measured says nothing
_NOISE_NBYTES = 4 << 20  # less than that may be anything
_CLEAR = 0.9  # as good as with the inputs
_STEEPEST = 2.0  # attention grows with the square of a sequence


class Activations:
    """Of one loaded model. Sizes are told apart by powers of two; racing updates only lose one.

    *missed* is how often a run of a new size could not be measured.
    """

    __slots__ = ("_seen", "missed", "most_nbytes")

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[int, int]]] = {}  # inputs and peaks, by their power
        self.most_nbytes = 0
        self.missed = 0

    def wants(self, inputs_nbytes: int) -> bool:
        """Whether another measurement of that size would teach something."""
        return len(self._seen.get(inputs_nbytes.bit_length(), ())) < _SAMPLES

    def observe(self, inputs_nbytes: int, peak_nbytes: int) -> None:
        """A run on *inputs_nbytes* took *peak_nbytes* at most."""
        samples = self._seen.get(inputs_nbytes.bit_length(), [])
        kept = [*samples, (inputs_nbytes, max(0, peak_nbytes))][-_SAMPLES:]
        self._seen = {**self._seen, inputs_nbytes.bit_length(): kept}
        self.most_nbytes = max(_least(samples)[1] for samples in self._seen.values())

    def forget(self, inputs_nbytes: int) -> None:
        """What was measured of that size was something else's too."""
        power = inputs_nbytes.bit_length()
        self._seen = {known: samples for known, samples in self._seen.items() if known < power}
        self.most_nbytes = max((_least(each)[1] for each in self._seen.values()), default=0)

    def measured_nbytes(self, inputs_nbytes: int) -> int | None:
        """What a run on *inputs_nbytes* takes, by one on as much or more; ``None`` without one."""
        power = inputs_nbytes.bit_length()
        nearest = min((p for p in self._seen if p >= power), default=None)
        if nearest is None:
            return None
        given_nbytes, peak_nbytes = _least(self._seen[nearest])
        return peak_nbytes * inputs_nbytes // max(1, given_nbytes)

    def expected_nbytes(self, inputs_nbytes: int) -> int | None:
        """As ``measured_nbytes``, or by runs on less; ``None`` if those were far less.

        It grows as the inputs do, or as it did from the second largest size to the largest
        if that was steeper. If it was less steep, for most of it is always the same, only what
        it grew by grows: at most with their square.
        """
        measured = self.measured_nbytes(inputs_nbytes)
        if measured is not None or not self._seen:
            return measured
        *others, largest = (_least(self._seen[power]) for power in sorted(self._seen))
        times = inputs_nbytes / max(1, largest[0])
        if times > _FAR:
            return None
        steepness = _steepness(others[-1], largest) if others else None
        if steepness is None or steepness >= 1.0:
            return int(largest[1] * times ** min(_STEEPEST, steepness or 1.0))
        smaller, grown_nbytes = others[-1][0] / largest[0], largest[1] - others[-1][1]
        more = (times**_STEEPEST - 1) / (1 - smaller**_STEEPEST)
        square = largest[1] + max(_NOISE_NBYTES, grown_nbytes) * more
        return int(min(largest[1] * times, square))

    def most_possible_nbytes(self, inputs_nbytes: int) -> int:
        """What a run on more than was measured may take at worst; of nothing, the square."""
        if not self._seen:
            return max(_NOISE_NBYTES, int(inputs_nbytes**_STEEPEST))
        given_nbytes, peak_nbytes = _least(self._seen[max(self._seen)])
        times = max(1.0, inputs_nbytes / max(1, given_nbytes))
        return int(max(peak_nbytes, _NOISE_NBYTES) * times**_STEEPEST)

    @property
    def shows_growth(self) -> bool:
        """Whether the largest size took so much more than the next that it tells how it grows."""
        largest = [_least(self._seen[power]) for power in sorted(self._seen)[-2:]]
        return len(largest) == 2 and (_steepness(*largest) or 0.0) >= _CLEAR


def _least(samples: list[tuple[int, int]]) -> tuple[int, int]:
    """The sample that took the least for each byte of its inputs."""
    return min(samples, key=lambda sample: sample[1] / max(1, sample[0]))


def _steepness(one: tuple[int, int], other: tuple[int, int]) -> float | None:
    """The power of the inputs by which the peak grew from *one* to the *other*, larger one.

    ``None`` where they are too small, or too alike, to tell.
    """
    if min(one[1], other[1]) < _NOISE_NBYTES or one[0] == other[0]:
        return None
    return math.log(other[1] / one[1]) / math.log(other[0] / max(1, one[0]))
