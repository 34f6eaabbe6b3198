"""Runs that are bound to memory of their own, which later runs on inputs of the same shapes reuse.

The engine then looks up no names and makes no arrays: of the 5 to 7 µs of a small run it saves 1.5
to 2.3. And inputs need no look at their addresses, which takes 2 µs each; see ``aligned``. The
inputs of several runs are copied at once, and so are their outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self

from workbench.backends.base import SeveralRuns
from workbench.backends.onnx.values import ELEMENT_TYPES
from workbench.tensor import Tensor, aligned_rows

_SMALL_NBYTES = 2**12  # to copy a larger array takes longer than a binding saves
_MOST = 64  # shapes
_MOST_RUNS = 512  # of all shapes that run several at a time


_Run = Callable[[Any, Mapping[str, Tensor], Sequence[str]], list[Tensor]]


class BoundRuns:
    """The runs of *engine*, a session of the module *ort*, with *options*, on the CPU; thread-safe.

    Runs that are not bound are made by *run*, with the options, the inputs and the wanted outputs.
    The shapes of the outputs must follow from those of the inputs, and no tensor be text or BF16.
    No two runs at a time share memory, and the answers are copies.
    """

    def __init__(self, ort: Any, engine: Any, options: Any, run: _Run) -> None:
        self._ort = ort
        self._engine = engine
        self._options = options
        self._run = run
        self._cpu = ort.OrtDevice.make("cpu", 0)._get_c_device()  # noqa: SLF001
        self._free: dict[Any, _Bound] = {}  # by the names, datatypes and shapes: see ``_key``
        self._known: set[Any] = set()  # of these some may be in use

    def run(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor]:
        key = _key(inputs, outputs)
        bound = self._free.pop(key, None)  # so that no other thread takes it
        if bound is not None:
            try:
                answers = bound.run(inputs)
            except Exception:  # its exceptions share no base below Exception
                self._known.discard(key)  # an ordinary run raises the right error, if any
                del bound  # that error keeps what is here
            else:
                self._free[key] = bound
                return answers
        tensors = self._run(self._options, inputs, outputs)
        if key not in self._known and len(self._known) < _MOST:
            self._learn(key, inputs, dict(zip(outputs, tensors, strict=True)))
        return tensors

    def has(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> bool:
        """Whether such runs are bound."""
        return _key(inputs, outputs) in self._known

    def several(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str]
    ) -> AbstractContextManager[SeveralRuns | None]:
        """See ``Runnable.several``. If they are too many, there are runs of the first of them."""
        key = _key(inputs, outputs, n_stacked=1)
        bound = self._free.pop(key, None)
        if bound is None:
            return nullcontext(None)
        count = len(next(iter(inputs.values())).array)
        if count > bound.room:
            bound = self._with_room(key, bound, count)
        bound.put(inputs, count)
        return bound

    def close(self) -> None:
        """Drop the engine; no run may be in progress."""
        del self._engine, self._run
        self._free.clear()

    def _learn(self, key: Any, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """Bind later runs that are like this one, unless that would not save anything."""
        sizes = [tensor.array.nbytes for tensor in (*inputs.values(), *outputs.values())]
        # an output that is an input is not written
        if (
            not inputs
            or inputs.keys() & outputs
            or not 0 < min(sizes) <= max(sizes) <= _SMALL_NBYTES
        ):
            return
        self._known.add(key)
        self._free[key] = self._bind(key, inputs, outputs, 1)

    def _with_room(self, key: Any, bound: _Bound, count: int) -> _Bound:
        """The same for *count* runs; as it is if there are so many of other shapes."""
        room = 1 << (count - 1).bit_length()
        others = [other.room for other in [*self._free.values()] if other.room > 1]
        if room + sum(others) > _MOST_RUNS:
            return bound
        return self._bind(key, bound.place, bound.result, room)

    def _bind(
        self, key: Any, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], count: int
    ) -> _Bound:
        """*count* runs like the one with these *inputs* and *outputs*."""
        places, results = _rows_of(inputs, count), _rows_of(outputs, count)
        bindings = [self._ort.SessionIOBinding(self._engine) for _ in range(count)]
        for row, binding in enumerate(bindings):
            for bind, tensors in ((binding.bind_input, places), (binding.bind_output, results)):
                for name, tensor in tensors.items():
                    array = tensor.array[row, ...]
                    element_type = ELEMENT_TYPES[tensor.datatype]
                    bind(name, self._cpu, element_type, array.shape, array.ctypes.data)
        run = self._engine.run_with_iobinding
        runs = [partial(run, binding, self._options) for binding in bindings]
        return _Bound(runs, places, results, partial(self._free.__setitem__, key))


class _Bound:
    """See ``SeveralRuns``: *runs* that read *places* and write *results*, a row each.

    As a context, it is given back at its end with *give_back*. *place* and *result* are those of
    the first run.
    """

    def __init__(
        self,
        runs: Sequence[Callable[[], object]],
        places: Mapping[str, Tensor],
        results: Mapping[str, Tensor],
        give_back: Callable[[_Bound], object],
    ) -> None:
        self._all_runs = self.runs = runs
        self._places = places
        self._results = results
        self._give_back = give_back
        self._run = runs[0]
        self.room = len(runs)
        self.place = _first(places)
        self.result = _first(results)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back(self)

    def run(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """One run. It may raise anything."""
        for name, tensor in inputs.items():
            self.place[name].array[...] = tensor.array
        self._run()
        return [Tensor(each.datatype, each.array.copy()) for each in self.result.values()]

    def put(self, inputs: Mapping[str, Tensor], count: int) -> None:
        """The next *count* runs are on these *inputs*, or as many of them as there is room for."""
        self.runs = self._all_runs[:count]
        for name, tensor in inputs.items():
            self._places[name].array[:count] = tensor.array[: self.room]

    def outputs(self, count: int) -> dict[str, Tensor]:
        return {
            name: Tensor(tensor.datatype, tensor.array[:count].copy())
            for name, tensor in self._results.items()
        }


def _rows_of(tensors: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """New memory for *count* of each of *tensors*."""
    return {
        name: Tensor(tensor.datatype, aligned_rows(tensor.array, count))
        for name, tensor in tensors.items()
    }


def _first(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: Tensor(each.datatype, each.array[0, ...]) for name, each in rows.items()}


def _key(inputs: Mapping[str, Tensor], outputs: Sequence[str], n_stacked: int = 0) -> Any:
    """What the inputs and outputs of a run are; *n_stacked* dimensions come before theirs."""
    key: Any = tuple(outputs)
    for name, tensor in inputs.items():
        key = key, name, tensor.datatype, tensor.array.shape[n_stacked:]
    return key
