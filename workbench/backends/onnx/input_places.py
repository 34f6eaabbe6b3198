"""Memory at aligned addresses for the inputs of a session's runs."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.tensor import Array, Tensor, aligned, aligned_like

_SMALL_NBYTES = 2**12  # up to this a copy takes less time than asking an array for its address


class InputPlaces:
    """Places small inputs of runs into memory that is used again; safe from any thread.

    Only for runs that have read their inputs when they return, and whose outputs never share
    memory with an input: ``InferenceSession.run`` is one, also of models that pass an input on.
    """

    def __init__(self) -> None:
        self._free: dict[str, Array] = {}  # by the input's name, of one shape: the last

    def take(self, inputs: Mapping[str, Tensor]) -> dict[str, Array]:
        """The arrays of *inputs*, each at an aligned address; see ``aligned``."""
        feed = {}
        for name, tensor in inputs.items():
            array = tensor.array
            place = self._free.pop(name, None)  # which no other thread has from now on
            if place is None or place.shape != array.shape or place.dtype is not array.dtype:
                if array.nbytes > _SMALL_NBYTES or array.dtype.hasobject:
                    feed[name] = aligned(array)
                    continue
                place = aligned_like(array)
            place[...] = array
            feed[name] = place
        return feed

    def give_back(self, feed: Mapping[str, Array]) -> None:
        """No run reads the arrays of *feed*, which ``take`` returned, any more."""
        for name, array in feed.items():
            if array.nbytes <= _SMALL_NBYTES and not array.dtype.hasobject:
                self._free[name] = array
