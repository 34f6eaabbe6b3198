"""How the answers of a conversion differ from those of the original, row by row.

Only numpy is needed: an original and a conversion are functions of arrays, which raise where they
refuse. A difference of two numbers is relative to the row: to its largest number, or, where that is
above 1, to the row's ordinary ones, so that one large number hides nothing beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.annexes.conversion.cases import Case
from workbench.errors import class_and_line_of
from workbench.tensor import Array

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_SIZES = (1, 2, 7)
_TRIED_ROWS = 70  # on which an original shows whether it answers each row by itself
_ORDINARY = 10  # times the least of a row's numbers, but for one in a hundred of them
_TYPICAL = 0.1  # of the numbers of ordinary rows: what a row near zero is measured by
_SHOWN_CHARS = 160  # characters of a refusal
_SHOWN_NUMBERS = 8  # numbers of a row in a message


@dataclass(frozen=True, slots=True)
class RowResult:
    """The answer to a row: its *outputs*, or the reason of its refusal."""

    outputs: Mapping[str, Array] = field(default_factory=dict)
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Differing:
    """A row that a conversion does not answer as the original; all of it in words."""

    row: int
    asked: str
    told: str

    def __str__(self) -> str:
        return f"row {self.row} {self.asked}, {self.told}"


@dataclass(slots=True)
class Evidence:
    """The findings of a comparison.

    *rows*: how many were compared, of which both refused *both_refuse*, one alone *one_refuses*,
    and the conversion alone *lacks* of those that it has no means to be told, which are texts that
    are missing. *labels*: rows with another label. *differences*: the largest of each row.
    *first*: the first row that differs.
    """

    tolerance: float
    rows: int = 0
    both_refuse: int = 0
    one_refuses: int = 0
    lacks: int = 0
    labels: int = 0
    differences: list[float] = field(default_factory=list)
    first: Differing | None = None

    @property
    def largest(self) -> float:
        return max(self.differences, default=0.0)

    @property
    def percentile_99(self) -> float:
        if not self.differences:
            return 0.0
        return float(np.quantile(self.differences, 0.99, method="higher"))


def compared(
    original: Run,
    converted: Run,
    cases: Iterable[Case],
    tolerance: float,
    axes: Mapping[str, tuple[int, ...]],
    *,
    to_the_end: bool = True,
) -> Evidence:
    """Compare *converted* with *original* on all rows of *cases*, in batches of several sizes.

    *axes*: those of each output that may have any size. If not *to_the_end*, it ends with the first
    of the cases in which a row differs.
    """
    evidence, floors = Evidence(tolerance), dict[str, float]()
    alone: bool | None = None  # whether the original answers each row as it does without others
    for case in cases:
        asking = _Asking(case, axes, may_split=alone is not False)
        right = asking.answers(original, case.count)
        if alone is None:
            floors = {name: _floor(right, name) for name in axes}
            tried = _Asking(case.first(_TRIED_ROWS), axes, may_split=False)
            alone = all(
                not _differ(right, tried.answers(original, size), floors, tolerance).any()
                for size in _SIZES
            )
            asking = _Asking(case, axes, may_split=alone)
        verdicts = _Verdicts(case, floors, tolerance)
        rows = np.arange(case.count)
        for size in case.sizes or dict.fromkeys((case.count, *_SIZES)):
            if alone:
                expected = [right[row] for row in rows]
            else:
                expected = right if size >= case.count else asking.answers(original, size)
            found = asking.answers(converted, size, rows)
            verdicts.add(size, rows, expected, found)
            if alone:  # what both refuse alone they refuse in any batch
                refused = [
                    bool(one.refusal and two.refusal)
                    for one, two in zip(expected, found, strict=True)
                ]
                rows = rows[~np.array(refused, bool)]
        verdicts.count(evidence)
        if evidence.first is not None and not to_the_end:
            break
    return evidence


class _Asking:
    """Asks with the rows of a case in batches; one that is refused is split, to find the row."""

    def __init__(self, case: Case, axes: Mapping[str, tuple[int, ...]], *, may_split: bool) -> None:
        self._case, self._axes, self._may_split = case, axes, may_split

    def answers(self, run: Run, size: int, rows: Array | None = None) -> list[RowResult]:
        rows = np.arange(self._case.count) if rows is None else rows
        batches = (rows[start : start + size] for start in range(0, len(rows), size))
        return [answer for batch in batches for answer in self._of(run, batch)]

    def _of(self, run: Run, rows: Array) -> list[RowResult]:
        try:
            outputs = run(self._case.batch(rows))
        except Exception as error:  # whatever a library raises
            if len(rows) == 1 or not self._may_split:
                return [RowResult(refusal=class_and_line_of(error)[:_SHOWN_CHARS])] * len(rows)
            half = len(rows) // 2
            return [*self._of(run, rows[:half]), *self._of(run, rows[half:])]
        return self._split({n: np.asarray(each) for n, each in outputs.items()}, len(rows))

    def _split(self, outputs: Mapping[str, Array], count: int) -> list[RowResult]:
        """*outputs* by rows; one that has none is all the first row's."""
        by_row: list[dict[str, Array]] = [{} for _ in range(count)]
        for name, array in outputs.items():
            shape = array.shape
            axis = next((a for a in self._axes[name] if shape[a : a + 1] == (count,)), None)
            if axis is None:
                by_row[0][name] = array
                continue
            for row, part in zip(by_row, np.moveaxis(array, axis, 0), strict=True):
                row[name] = np.asarray(part)
        return list(map(RowResult, by_row))


class _Verdicts:
    """The differences of each row of a *case*, over batches of several sizes."""

    def __init__(self, case: Case, floors: Mapping[str, float], tolerance: float) -> None:
        self._case, self._floors, self._tolerance = case, floors, tolerance
        self._labels = np.zeros(case.count, bool)
        self._refused = np.zeros((2, case.count), bool)  # by both, by one
        self._apart = np.zeros(case.count)
        self._first: tuple[int, Differing] | None = None

    def add(
        self, size: int, rows: Array, right: Sequence[RowResult], found: Sequence[RowResult]
    ) -> None:
        """Count what *rows*, asked in batches of *size*, are answered."""
        labels, apart = _distances(right, found, self._floors)
        self._labels[rows] |= labels
        self._apart[rows] = np.maximum(self._apart[rows], apart)
        refused = np.array([[bool(e.refusal) for e in some] for some in (right, found)], bool)
        self._refused[0][rows] |= refused.all(0)
        one = refused[0] != refused[1]
        self._refused[1][rows] |= one
        lacks = one & refused[1] if self._case.may_refuse else np.zeros_like(one)
        wrong = (labels | (one & ~lacks) | (apart > self._tolerance)).nonzero()[0]
        if wrong.size and (self._first is None or rows[wrong[0]] < self._first[0]):
            at, row = wrong[0], int(rows[wrong[0]])
            asked = self._case.told
            if size < self._case.count:
                asked += f" in a batch of {size}" if size > 1 else " alone"
            self._first = row, _differing(self._case, row, asked, right[at], found[at])

    def count(self, evidence: Evidence) -> None:
        both, one = self._refused
        evidence.rows += self._case.count
        evidence.both_refuse += int(np.count_nonzero(both))
        name = "lacks" if self._case.may_refuse else "one_refuses"
        setattr(evidence, name, getattr(evidence, name) + int(np.count_nonzero(one)))
        evidence.labels += int(np.count_nonzero(self._labels))
        evidence.differences += self._apart[~both & ~one].tolist()
        if evidence.first is None and self._first is not None:
            evidence.first = self._first[1]


def _differ(
    right: Sequence[RowResult],
    found: Sequence[RowResult],
    floors: Mapping[str, float],
    tolerance: float,
) -> Array:
    """True for each row of *found* that differs from its row of *right*, which may have more."""
    right = right[: len(found)]
    labels, apart = _distances(right, found, floors)
    one = [bool(r.refusal) != bool(f.refusal) for r, f in zip(right, found, strict=True)]
    wrong: Array = labels | (apart > tolerance) | one
    return wrong


def _distances(
    right: Sequence[RowResult], found: Sequence[RowResult], floors: Mapping[str, float]
) -> tuple[Array, Array]:
    """Two values for each row: True if a label differs, and the largest difference of numbers."""
    labels, apart = np.zeros(len(right), bool), np.zeros(len(right))
    for name, floor in floors.items():
        alike: dict[tuple[int, ...], list[int]] = {}
        for row, (one, other) in enumerate(zip(right, found, strict=True)):
            if one.refusal or other.refusal or name not in one.outputs.keys() | other.outputs:
                continue
            shapes = [
                some.outputs[name].shape if name in some.outputs else None for some in (one, other)
            ]
            if shapes[0] is None or shapes[0] != shapes[1]:
                apart[row] = np.inf
            else:
                alike.setdefault(shapes[0], []).append(row)
        for rows in alike.values():
            expected, given = (
                np.stack([some[row].outputs[name] for row in rows]) for some in (right, found)
            )
            if expected.dtype.kind == "f":
                apart[rows] = np.maximum(apart[rows], relative(expected, given, floor))
            else:
                labels[rows] |= _others(expected, given)
    return labels, apart


def _others(right: Array, found: Array) -> Array:
    """True for each row that has another label."""
    differ: Array = (_plain(right) != _plain(found)).reshape(len(right), -1).any(1)
    return differ


def _plain(labels: Array) -> Array:
    """*labels*, texts as ``str``, whether they were that or bytes."""
    if labels.dtype.kind not in "OSU":
        return labels
    flat = [each.decode() if isinstance(each, bytes) else each for each in labels.flat]
    plain = np.empty(len(flat), object)
    plain[:] = flat
    return plain.reshape(labels.shape)


def relative(right: Array, found: Array, floor: float = 0.0) -> Array:
    """The largest difference in each row, relative to the row; infinite where one is NaN."""
    right, found = (each.reshape(len(each), -1).astype(np.float64) for each in (right, found))
    with np.errstate(all="ignore"):
        apart = np.abs(found - right)
        apart[(found == right) | (np.isnan(found) & np.isnan(right))] = 0
        apart[np.isnan(apart)] = np.inf
        shares = apart / np.maximum(_scale(right), floor)
    shares[apart == 0] = 0
    largest: Array = shares.max(1, initial=0.0)
    return largest


def _scale(rows: Array) -> Array:
    """The scale of each number, by which its differences are divided."""
    sizes = np.abs(np.where(np.isfinite(rows), rows, 0))
    top: Array = sizes.max(1, keepdims=True, initial=0.0)
    ordered = np.sort(np.where(sizes > 0, sizes, np.nan), axis=1)
    last = np.maximum(np.count_nonzero(sizes, axis=1) - 1, 0)[:, None]
    if not ordered.size:
        return top
    least, middle = (np.take_along_axis(ordered, at, 1) for at in (last // 100, last // 2))
    ordinary = np.maximum(np.fmin(_ORDINARY * least, middle), 1)
    scale: Array = np.maximum(sizes, np.fmin(top, ordinary))
    return scale


def _floor(answers: Sequence[RowResult], name: str) -> float:
    """The least that a difference in output *name* is relative to, by rows as they are given."""
    given = [each.outputs[name] for each in answers if name in each.outputs]
    tops = [
        np.abs(each[np.isfinite(each)]).max(initial=0.0) for each in given if each.dtype.kind == "f"
    ]
    found = [top for top in tops if top > 0]
    return _TYPICAL * float(np.quantile(found, 0.1, method="lower")) if found else 0.0


# ── in words ──


def _differing(case: Case, row: int, asked: str, right: RowResult, found: RowResult) -> Differing:
    inputs = case.batch(np.array([row]))
    told = [_shown(array) for array in inputs.values()]
    if len(told) > 1:
        told = [f"{name}={each}" for name, each in zip(inputs, told, strict=True)]
    one, other = (_told(each, right, found) for each in (right, found))
    pair = f"the object {one}, the conversion {other}"
    return Differing(row, asked, f"{', '.join(told)}: {pair}")


def _told(answer: RowResult, right: RowResult, found: RowResult) -> str:
    if answer.refusal:
        return f"refuses ({answer.refusal})"
    names = [
        name
        for name, array in answer.outputs.items()
        if right.refusal or found.refusal or not _same(right, found, name) or array.ndim == 0
    ]
    shown = ", ".join(f"{name} {_shown(answer.outputs[name])}" for name in names)
    return f"answers {shown}"


def _same(right: RowResult, found: RowResult, name: str) -> bool:
    one, other = right.outputs.get(name), found.outputs.get(name)
    if one is None or other is None or one.shape != other.shape:
        return False
    return np.array_equal(_plain(one), _plain(other))


def _shown(array: Array) -> str:
    flat = array.reshape(-1)[:_SHOWN_NUMBERS].tolist()
    words = [
        f"{each:.9g}" if isinstance(each, float) else repr(each)
        for each in _plain(np.array(flat, object)).tolist()
    ]
    more = ", ..." if array.size > _SHOWN_NUMBERS else ""
    return f"[{', '.join(words)}{more}]"
