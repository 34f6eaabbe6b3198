"""The memory that runs of a model take, learned from runs, by the size of their inputs."""

from __future__ import annotations

# Measurements of a size. The least of them counts, because other work can only add to one.
_SAMPLES = 3
_FAR = 64  # no prediction for inputs more than this many times larger than the largest measured
_NOISE_NBYTES = 4 << 20  # in smaller peaks, growth cannot be told from noise


class Activations:
    """The memory of one model's runs. Sizes are grouped by powers of two; a race loses one update.

    *missed* is how often a run of a new size could not be measured.
    """

    def __init__(self) -> None:
        # Pairs of inputs and peak, by the power of two of the inputs.
        self._seen: dict[int, list[tuple[int, int]]] = {}
        self.most_nbytes = 0
        self.missed = 0

    def wants(self, inputs_nbytes: int) -> bool:
        """True if another measurement of that size is useful."""
        return len(self._seen.get(inputs_nbytes.bit_length(), ())) < _SAMPLES

    def observe(self, inputs_nbytes: int, peak_nbytes: int) -> None:
        power = inputs_nbytes.bit_length()
        samples = [*self._seen.get(power, []), (inputs_nbytes, max(0, peak_nbytes))]
        self._keep({**self._seen, power: samples[-_SAMPLES:]})

    def measured_nbytes(self, inputs_nbytes: int) -> int | None:
        """The memory of a run, known from a run on inputs as large or larger; else ``None``."""
        power = inputs_nbytes.bit_length()
        nearest = min((p for p in self._seen if p >= power), default=None)
        if nearest is None:
            return None
        given_nbytes, peak_nbytes = _least(self._seen[nearest])
        return peak_nbytes * inputs_nbytes // max(1, given_nbytes)

    def expected_nbytes(self, inputs_nbytes: int) -> int | None:
        """Like ``measured_nbytes``, or predicted from runs that are not far smaller; else ``None``.

        The prediction is a straight line and a square (attention grows with the square of a
        sequence) through the two largest sizes; with one size, it is proportional.
        """
        measured = self.measured_nbytes(inputs_nbytes)
        return self._predicted_nbytes(inputs_nbytes) if measured is None else measured

    def doubted_nbytes(self, inputs_nbytes: int) -> int | None:
        """Like ``expected_nbytes``, but not by few measurements that smaller runs belie.

        Other work of the process may have added to these: they count if they are no more than
        twice what is predicted.
        """
        expected = self.expected_nbytes(inputs_nbytes)
        if expected is None or not self.wants(inputs_nbytes):
            return expected
        predicted = self._predicted_nbytes(inputs_nbytes, below=inputs_nbytes.bit_length())
        return expected if predicted is None or expected <= 2 * predicted else predicted

    def _predicted_nbytes(self, inputs_nbytes: int, below: int | None = None) -> int | None:
        """The prediction by the sizes that were measured, those *below* a power of two."""
        powers = sorted(power for power in self._seen if below is None or power < below)
        if not powers:
            return None
        *others, largest = (_least(self._seen[power]) for power in powers)
        times = inputs_nbytes / max(1, largest[0])
        if times > _FAR:
            return None
        square = _square(others[-1], largest) if others else 0.0
        return int(largest[1] * (square * times**2 + (1 - square) * times))

    def _keep(self, seen: dict[int, list[tuple[int, int]]]) -> None:
        self._seen = seen
        self.most_nbytes = max((_least(samples)[1] for samples in seen.values()), default=0)


def _least(samples: list[tuple[int, int]]) -> tuple[int, int]:
    """The sample with the least memory for each byte of its inputs."""
    return min(samples, key=lambda sample: sample[1] / max(1, sample[0]))


def _square(one: tuple[int, int], other: tuple[int, int]) -> float:
    """The part of the peak of the *other*, larger sample that grows with the square: 0 to 1."""
    inputs, peak = one[0] / other[0], one[1] / max(1, other[1])
    if other[1] < _NOISE_NBYTES or inputs in (0, 1):
        return 0.0
    return min(1.0, max(0.0, (inputs - peak) / (inputs - inputs**2)))
