"""Metadata of the server and of models, and their configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from workbench.codecs.model_config import describe
from workbench.core import ServerCore
from workbench.errors import LoadFailed, ModelNotFound
from workbench.model import TensorSpec
from workbench.version import __version__

_EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "generate",
    "statistics",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "model_repository_extension",  # KServe's name of it
)


def server_metadata(core: ServerCore) -> Mapping[str, object]:
    """V2's "Server Metadata"."""
    shared = ("system_shared_memory",) if core.regions is not None else ()
    return {"name": "workbench", "version": __version__, "extensions": _EXTENSIONS + shared}


def model_metadata(core: ServerCore, name: str, version: int | None) -> Mapping[str, object]:
    """V2's "Model Metadata". Raises as ``model_config``."""
    with _unlisted(core, version):
        metadata = core.status.metadata(name, version)
    signature = metadata.signature
    return {
        "name": metadata.name,
        "versions": [str(each) for each in metadata.versions],
        "platform": signature.platform,
        "inputs": _tensors(signature.inputs),
        "outputs": _tensors(signature.outputs),
    }


def _tensors(specs: Mapping[str, TensorSpec]) -> list[Mapping[str, object]]:
    return [
        {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}
        for spec in specs.values()
    ]


def model_config(core: ServerCore, name: str, version: int | None) -> Mapping[str, object]:
    """The configuration in force, as the members of Triton's ModelConfig, defaults included.

    Raises ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``.
    """
    with _unlisted(core, version):
        source, signature = core.status.source(name, version), core.status.signature(name, version)
        instances = core.status.instances(name, version)
    return describe(source, signature, core.status.gpu(source.id), instances)


@contextmanager
def _unlisted(core: ServerCore, version: int | None) -> Iterator[None]:
    """With ``load="explicit"``, a model that cannot be loaded does not exist, as in Triton.

    Unless a *version* is named.
    """
    try:
        yield
    except LoadFailed as error:
        if core.settings.load != "explicit" or version is not None:
            raise
        raise ModelNotFound(str(error)) from error
