"""What a model is: its identity, its life, what it declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from workbench.errors import ModelNotFound
from workbench.nbytes import show_nbytes


class ModelId(NamedTuple):
    """A model's name and version, always complete.

    Where its files change while it is loaded, what is loaded of them is the next *edition*,
    beside the one that is served until then. Who keeps models in memory tells them apart, and
    so do events; to everybody else they are one model.
    """

    name: str
    version: int
    edition: int = 0

    @property
    def plain(self) -> ModelId:
        """This id without its edition, as users see it."""
        return self._replace(edition=0) if self.edition else self

    def __str__(self) -> str:
        return f"{self.name}:{self.version}"


def drop_name(known: MutableMapping[Any, Any], name: str) -> None:
    """Drop the models called *name* from *known*, whose keys begin with a model's name."""
    for key in [key for key in list(known) if key[0] == name]:  # others may change it meanwhile
        known.pop(key, None)


TIER, TIERS = "tier", ("auto", "plain", "prepared", "mapped")
"""The parameter of a configuration that says how a model is loaded again, and its values."""


class ModelState(Enum):
    """Where a model is in its life, in Triton's words."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"

    __hash__ = object.__hash__  # members are single objects; the hash of Enum is slow


LEGAL_STEPS: Mapping[ModelState, frozenset[ModelState]] = MappingProxyType(
    {
        ModelState.UNAVAILABLE: frozenset({ModelState.LOADING}),
        ModelState.LOADING: frozenset({ModelState.READY, ModelState.UNAVAILABLE}),
        ModelState.READY: frozenset({ModelState.UNLOADING}),
        ModelState.UNLOADING: frozenset({ModelState.UNAVAILABLE}),
    }
)


def step(current: ModelState, to: ModelState) -> ModelState:
    """The next state, which must be a legal one; anything else is our own bug."""
    if to not in LEGAL_STEPS[current]:
        raise AssertionError(f"a model cannot go from {current.value} to {to.value}")
    return to


class Need(NamedTuple):
    """The memory that loading and keeping a model takes at most, in bytes."""

    nbytes: int
    loading_nbytes: int = 0  # part of *nbytes*, free again once it is loaded

    def __str__(self) -> str:
        """As people read it: ``"29.5 MiB (20.2 MiB once loaded, 9.3 MiB more while loading)"``."""
        whole, loading_nbytes = show_nbytes(self.nbytes), self.loading_nbytes
        if not loading_nbytes:
            return whole
        kept, loading = show_nbytes(self.nbytes - loading_nbytes), show_nbytes(loading_nbytes)
        return f"{whole} ({kept} once loaded, {loading} more while loading)"


class Footprint(NamedTuple):
    """What a loaded model holds, in bytes: its *weights*, and what *other* it takes.

    *mapped* is the part of both that is pages of a file, which the system may take back
    and read again. *declared* is what somebody says that it holds beside.
    """

    weights_nbytes: int = 0
    other_nbytes: int = 0
    mapped_nbytes: int = 0
    declared_nbytes: int = 0

    @property
    def nbytes(self) -> int:
        """All that it holds."""
        return self.weights_nbytes + self.other_nbytes + self.declared_nbytes

    def of(self, nbytes: int) -> Footprint:
        """The same, if it holds *nbytes* in all."""
        own_nbytes = nbytes - self.declared_nbytes
        weights_nbytes = min(self.weights_nbytes, own_nbytes)
        return self._replace(
            weights_nbytes=weights_nbytes, other_nbytes=own_nbytes - weights_nbytes
        )

    @property
    def unseen_nbytes(self) -> int:
        """What of it the system does not count as taken when it is loaded."""
        return self.mapped_nbytes + self.declared_nbytes


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A declared input or output: V2 *datatype*, *shape* with -1 where any size goes.

    *format* is what the configuration declares of an image: ``"FORMAT_NHWC"``,
    ``"FORMAT_NCHW"``, or nothing. *reshape* is the shape that the model itself has it in,
    where a configuration says that this is another one.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    format: str = ""
    reshape: tuple[int, ...] | None = None

    @property
    def as_the_model_has_it(self) -> TensorSpec:
        """It in the model's own shape."""
        return self if self.reshape is None else replace(self, shape=self.reshape, reshape=None)

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this *shape* fits the declaration."""
        return _accepts(self.shape, shape)


@lru_cache(4096)  # a model's requests have few shapes: this takes a fifth of the time
def _accepts(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a tensor of *shape* fits what is *declared*, where -1 is any size."""
    if len(shape) != len(declared):
        return False
    return all(want in (got, -1) for want, got in zip(declared, shape, strict=True))


HIGHEST_VERSION = 2**63 - 1  # which Triton's clients can name


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions of a model are served (Triton's version_policy).

    *latest* highest ones; or all (*latest* 0); or just the *specific* ones.
    """

    latest: int = 1
    specific: tuple[int, ...] = ()

    def choose(self, versions: tuple[int, ...]) -> tuple[int, ...]:
        """The served ones among *versions*, ascending."""
        ordered = tuple(sorted(versions))
        if self.specific:
            return tuple(version for version in ordered if version in self.specific)
        return ordered[-self.latest :] if self.latest else ordered


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What a configuration asks of ONNX Runtime.

    *intra_threads* and *inter_threads* are those of one run, 0 for as many as there are
    cores, ``None`` for the server's choice; *parallel* whether nodes run side by side.
    *arena* and *memory_pattern* are about a CPU's memory; *device_allocator* has weights lie
    outside the arena; *shrinkage* names the devices whose arenas shrink after each run.
    *optimization* is ``"all"``, ``"extended"``, ``"basic"`` or ``"none"``, *cuda* the options
    of the CUDA provider, of which *accelerator* came as those of an execution accelerator.
    """

    intra_threads: int | None = None
    inter_threads: int | None = None
    parallel: bool = False
    arena: bool = False
    memory_pattern: bool = True
    device_allocator: bool = True
    shrinkage: tuple[str, ...] = ()
    optimization: str = "all"
    cuda: Mapping[str, str] = field(default_factory=dict)
    accelerator: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How many requests may wait, *most* (0: any number), and how long, *timeout_s* (0: for ever).

    A request *may_override* that with less. Whoever waited too long is refused, or *delays*:
    then the others of its priority go first.
    """

    most: int = 0
    timeout_s: float = 0.0
    may_override: bool = False
    delays: bool = False


@dataclass(frozen=True, slots=True)
class Batching:
    """Which requests run together: batches of *preferred* sizes, for which they wait *delay_s*.

    *ordered* is whether they are answered in the order of their coming. There are *levels* of
    priority, 1 first, of which a request has the *default_level* unless it says otherwise;
    *policies* of levels count before the *policy*.
    """

    preferred: tuple[int, ...] = ()
    delay_s: float = 0.0
    ordered: bool = False
    levels: int = 0
    default_level: int = 0
    policy: QueuePolicy = QueuePolicy()
    policies: Mapping[int, QueuePolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How requests come to a model: so many *instances* run at once, with *batching* or without."""

    instances: int
    batching: Batching | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an ensemble, its *number* from 1: a *model* runs.

    Of its latest *version*, if that is ``None``. *inputs* and *outputs* are the ensemble's
    tensors, by the model's own names.
    """

    number: int
    model: str
    version: int | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def part(self) -> tuple[str, int | None]:
        """The model that runs: name and version."""
        return self.model, self.version

    def __str__(self) -> str:
        return f"step {self.number} ({self.model})"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """How requests come to an ensemble: they go through its *steps*, which other models run.

    A step runs as soon as its tensors are there; none waits for itself.
    """

    steps: tuple[Step, ...]

    @property
    def parts(self) -> tuple[tuple[str, int | None], ...]:
        """The models of its steps, each once: name and version."""
        return tuple(dict.fromkeys(step.part for step in self.steps))

    def origin_of(self, tensor: str) -> tuple[Step, str]:
        """The step that gives *tensor*, and the output of its model that this is."""
        given = ((step, name, t) for step in self.steps for name, t in step.outputs.items())
        return next((step, name) for step, name, t in given if t == tensor)


@dataclass(frozen=True, slots=True)
class WarmUpInput:
    """An input of a sample, of V2 *datatype* and *shape*, less the batch.

    *data* is ``"zero"``, ``"random"``, or a file with the bytes of one element of the batch.
    """

    datatype: str
    shape: tuple[int, ...]
    data: str | Path


@dataclass(frozen=True, slots=True)
class WarmUpSample:
    """What a model runs on, *count* times, before it is READY; *batch_size* only if it batches."""

    name: str
    batch_size: int
    count: int
    inputs: Mapping[str, WarmUpInput]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the model's configuration says, as far as it is honoured.

    *inputs* and *outputs* are empty where the model file is to say; their
    shapes already hold the batch dimension where *max_batch_size* is above 0.
    *labels* are per output, in class order, and come from *label_filenames*.
    *parameters* are the options of ``image_forms``, ``tier``, those that are in *engine*, and
    any others. It runs on the samples of *warm_up* before it is READY. *batching* is how requests
    run together, if they do; *instances* how many runs go at once, 0 for the server's choice;
    *placed* is where it is to be, ``"CPU"``, ``"GPU"``, or nothing. An *ensemble* is made of
    other models. Its metrics have *metric_tags* as labels too. *ignored* are the names of those
    *parameters* that mean nothing here. *pinned_memory* is whether inputs and outputs may go
    through pinned memory, which is never done. *cached* is whether its answers may be kept for
    equal requests.
    """

    name: str
    max_batch_size: int = 0
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    version_policy: VersionPolicy = VersionPolicy()
    model_filename: str = "model.onnx"
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    label_filenames: Mapping[str, str] = field(default_factory=dict)
    engine: EngineOptions = EngineOptions()
    warm_up: tuple[WarmUpSample, ...] = ()
    batching: Batching | None = None
    instances: int = 0
    placed: str = ""
    ensemble: Ensemble | None = None
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    pinned_memory: tuple[bool, bool] = (True, True)
    cached: bool = False

    @property
    def warm_up_files(self) -> tuple[Path, ...]:
        """Those that its samples are read from."""
        given = (each.data for sample in self.warm_up for each in sample.inputs.values())
        return tuple(data for data in given if isinstance(data, Path))

    @property
    def tier(self) -> str:
        """How it is loaded again, one of ``TIERS``.

        ``"plain"`` as the first time; ``"prepared"``, fast; ``"mapped"``, faster, for
        slower runs; ``"auto"`` is prepared for large models that return.
        """
        return self.parameters.get(TIER, "auto")


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A Python callable, served as a model: called with one array an input, by name.

    With a *max_batch_size* the first dimension of all is a batch of at most so many. *place* is
    where it is defined, for errors. One that
    *streams* is a generator function: each value that it yields is an answer. One that
    *takes_parameters* is called with those of the request as ``parameters``, a dict.
    """

    function: Callable[..., Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nbytes: int = 0
    max_batch_size: int = 0
    schedule: Schedule | None = None
    place: str = ""
    streams: bool = False
    takes_parameters: bool = False


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model's bytes are: a file of a repository, a Python callable, or in other models."""

    id: ModelId
    config: ModelConfig
    origin: Path | FunctionModel | Ensemble


@dataclass(frozen=True, slots=True)
class ImageForm:
    """How an input takes encoded images: its *layout*, ``"NHWC"`` or ``"NCHW"``; *rgb* or BGR.

    The values of a float input are multiplied by *scale*.
    """

    layout: str
    rgb: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives, and on which *platform* it runs.

    *inputs* and *outputs* are by name, in the model's own order. *labels* are
    the names of an output's classes, in order. *image_forms* has the inputs that
    take encoded images too.
    """

    platform: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    max_batch_size: int = 0
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image_forms: Mapping[str, ImageForm] = field(default_factory=dict)

    @property
    def main_input(self) -> TensorSpec | None:
        """The only input, or of several the only one that may not be left out, if that is so."""
        inputs = [*self.inputs.values()]
        needed = [each for each in inputs if not each.optional] if len(inputs) > 1 else inputs
        return needed[0] if len(needed) == 1 else None


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The V2 protocol's "Model Metadata", before it becomes JSON."""

    name: str
    versions: tuple[int, ...]
    signature: Signature


# Control characters and line ends, which would break the lines that events and
# messages are, and halves of surrogate pairs, which no wire can carry.
_UNSPEAKABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


PLATFORM_PREFIX = "sagemaker/"
"""What the names of models begin with that a SageMaker platform had loaded, and of no others."""


def check_name(name: str) -> str:
    """The *name*, if it can be one; else ``ModelNotFound``.

    Names reach folders, so a part that climbs out of one, and a NUL, never pass.
    """
    parts = name.replace("\\", "/").split("/")
    if _UNSPEAKABLE.search(name) or any(part in ("", ".", "..") for part in parts):
        raise ModelNotFound(f"{name!r} cannot be the name of a model")
    return name
