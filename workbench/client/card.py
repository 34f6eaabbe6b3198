"""``wb["iris"]``: one model as an object that can be looked at, and called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from workbench.client.coercion import NO_INPUTS
from workbench.contracts.triton.metadata import model_config
from workbench.core import ServerCore
from workbench.core.status.snapshot import broken_status
from workbench.errors import AttributeUnknown, LoadFailed, ModelNotFound, WorkbenchError
from workbench.http.openapi.examples import infer_example, is_showable
from workbench.inference import zeros_of
from workbench.model import Signature, TensorSpec
from workbench.spelling import available, meant
from workbench.tensor import Array
from workbench.views.calls import calls
from workbench.views.card import CardValues, card_html, card_text
from workbench.views.objects import Model

_WRITTEN = 1024  # elements of an input that are written out: with more, nobody reads them


class ModelCard:
    """The model *name* of a server: what it takes and gives, its state, and how to ask it.

    It is read anew whenever it is looked at. *ask* and *read* are the server's.
    """

    def __init__(
        self, name: str, ask: Callable[..., Any], read: Callable[[str], CardValues]
    ) -> None:
        self.name = name
        self._ask = ask
        self._read = read

    def __call__(self, inputs: object = NO_INPUTS, /, **options: Any) -> Any:
        """As ``wb.infer`` of this model."""
        return self._ask(self.name, inputs, **options)

    @property
    def status(self) -> Model:
        """The model's state and memory, its requests and loads, now."""
        return Model.of(self._read(self.name).status)

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """The inputs by name; none if the model's files cannot be read."""
        signature = self._read(self.name).signature
        return {} if signature is None else dict(signature.inputs)

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """The outputs by name; none if the model's files cannot be read."""
        signature = self._read(self.name).signature
        return {} if signature is None else dict(signature.outputs)

    @property
    def example(self) -> dict[str, Array]:
        """Inputs that it takes, by name: one row of the example that it was served with.

        Without one they are zeros, with 1 for each size that may be any.
        """
        if kept := self._read(self.name).example:
            return dict(kept)
        return {name: zeros_of(spec) for name, spec in self.inputs.items() if not spec.optional}

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration in force, as Triton tells it; empty where the server tells none."""
        return self._read(self.name).config or {}

    @property
    def calls(self) -> Mapping[str, str]:
        """The code of an example request, by client: ``print(wb["iris"].calls["curl"])``."""
        return self._read(self.name).calls

    @property
    def docs_url(self) -> str:
        """The page where it can be tried in a browser; empty where the server has none."""
        return self._read(self.name).docs_url

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # as Python and IPython look for
                raise AttributeError(name)
            server = getattr(self._ask, "__self__", None)
            cure = meant(name, dir(type(self)))
            if hasattr(type(server), name):
                cure = f": write wb.{name}({self.name!r})"
            elif hasattr(Model, name):
                cure = f": write wb[{self.name!r}].status.{name}"
            raise AttributeUnknown(f"the card of a model has no attribute {name!r}{cure}")

    def __repr__(self) -> str:
        try:
            return card_text(self._read(self.name))
        except WorkbenchError as error:
            return f"{self.name}: {error}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        try:
            card = self._read(self.name)
        except WorkbenchError as error:
            return {"text/plain": f"{self.name}: {error}"}
        return {"text/plain": card_text(card), "text/html": card_html(card)}


def check_known(name: object, names: Iterable[str]) -> str:
    """The *name*, if it is one of *names*. Raises ``ModelNotFound``, which tells similar names."""
    known = list(names)
    if isinstance(name, str) and name in known:
        return name
    hint = meant(name, known) if isinstance(name, str) else ""
    raise ModelNotFound(f"there is no model {name!r}{hint or f'; {available(known)}'}")


def card_of(
    core: ServerCore,
    name: str,
    url: str,
    page: str,
    example: Mapping[str, Array] | None = None,
    *,
    token: bool,
) -> CardValues:
    """The card of a model of *core*, which answers at *url*; a browser finds it at *page*.

    *example*: inputs of it, if it was served with such. *token* is whether requests need one.
    Raises ``ServerNotRunning``, and ``ModelNotFound`` if the model is gone by now.
    """
    try:
        status, signature = core.status.of(name), core.status.signature(name)
        config = model_config(core, name, None)
    except LoadFailed as error:
        return CardValues(broken_status(name, str(error)))
    request = request_of(signature, example)
    return CardValues(
        status,
        signature,
        0 if status.nbytes else _estimate_nbytes(core, name),
        config,
        request,
        calls(core.settings, url, name, request, token=token),
        docs_url(page, name),
        example,
    )


def docs_url(page: str, name: str) -> str:
    """The page of the model *name*, of the server at *page*; ``""`` if that is a socket file."""
    if page.startswith("unix:"):
        return ""
    address, mark, query = page.partition("?")
    return f"{address.rstrip('/')}/v2/models/{quote(name, safe='')}/docs{mark}{query}"


def request_of(
    signature: Signature, example: Mapping[str, Array] | None = None
) -> Mapping[str, Any]:
    """An example request, of *example* if there is one that JSON can hold.

    Inputs that are too large to be read are not written out.
    """
    if example and all(map(_is_plain, example.values())):
        return {
            "inputs": [
                {"name": name, "shape": list(array.shape),
                 "datatype": signature.inputs[name].datatype, "data": _plain(array)}
                for name, array in example.items()
            ]
        }  # fmt: skip
    if is_showable(signature):
        return infer_example(signature)
    return {
        "inputs": [
            {"name": spec.name, "shape": [max(1, size) for size in spec.shape],
             "datatype": spec.datatype}
            for spec in signature.required.values()
        ]
    }  # fmt: skip


def _estimate_nbytes(core: ServerCore, name: str) -> int:
    try:
        return core.models.estimate(name).nbytes
    except WorkbenchError:  # a part of an ensemble is missing, and the card says so elsewhere
        return 0


def _is_plain(array: Array) -> bool:
    """True if the tensor's elements can be written out as JSON."""
    return array.size <= _WRITTEN and (array.dtype.kind != "f" or bool(np.isfinite(array).all()))


def _plain(array: Array) -> list[object]:
    """The tensor's elements; floats with the digits that they need in their own datatype."""
    flat = array.reshape(-1)
    if array.dtype.kind == "f":
        return [float(str(number)) for number in flat]
    return [item.decode() if isinstance(item, bytes) else item for item in flat.tolist()]
