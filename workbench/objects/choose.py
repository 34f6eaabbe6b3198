"""From an object of a library to a ``Servable``: the choice by the kind of the object."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from workbench.errors import UsageError
from workbench.objects.declared import Declared, declared_hints
from workbench.objects.frozen import frozen
from workbench.objects.kinds import kind_of
from workbench.objects.servable import Servable


def servable(
    thing: Any, example: Any, inputs: Declared | None = None, copy: bool | None = None
) -> Servable | None:
    """*thing* as a model; ``None`` if it is of no library that is known.

    *inputs* declare those of a module of PyTorch; *copy*: see ``frozen``. Raises ``UsageError``
    where an *example* is needed, or where *thing* cannot be a model.
    """
    library = kind_of(thing)
    if library in ("", "onnx"):
        return None
    if library == "torch program":
        from workbench.objects.modules import OF_A_PROGRAM

        raise UsageError(OF_A_PROGRAM)
    if library == "torch":
        from workbench.objects.modules import unwrapped

        thing = unwrapped(thing)
    taken = frozen(thing, copy)
    made = _described(library, taken.thing, example, inputs)
    return replace(made, nbytes=taken.nbytes, unfrozen=taken.itself)


def _described(library: str, thing: Any, example: Any, inputs: Declared | None) -> Servable:
    is_booster = library != "sklearn" and type(thing).__name__ == "Booster"
    if library in ("sklearn", "xgboost", "lightgbm") and not is_booster:
        from workbench.objects.estimators import servable_estimator

        return servable_estimator(thing, example)
    if is_booster:
        from workbench.objects.boosters import servable_booster

        return servable_booster(library, thing, example)
    if library == "torch":
        from workbench.objects.modules import servable_module

        hints = {} if inputs is None else declared_hints("input", inputs)
        return servable_module(thing, example, hints)
    from workbench.objects.pipelines import servable_pipeline

    return servable_pipeline(thing, example)


def with_frozen_self(function: Any, copy: bool | None) -> Any:
    """The method *function* of a frozen copy of its object, if that is of a library; else itself.

    A function of a cell is served as it is: what it refers to is the notebook's own.
    """
    if isinstance(function, partial):
        return partial(with_frozen_self(function.func, copy), *function.args, **function.keywords)
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if owner is None or kind_of(owner) in ("", "onnx") or not hasattr(owner, name):
        return function
    return getattr(frozen(owner, copy).thing, name)
