"""A model's values: its identity, its life, its declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from workbench.errors import ModelNotFound
from workbench.nbytes import show_nbytes
from workbench.own_folder import OwnFolder

T = TypeVar("T")


class ModelId(NamedTuple):
    """A model's name and version, always complete; the version is 0 if none can be read.

    If the files of a loaded model change, the new files are loaded as its next *edition*, while
    the old edition still answers. Only the residency and its events tell editions apart.
    """

    name: str
    version: int
    edition: int = 0

    @property
    def plain(self) -> ModelId:
        """This id without its edition, as users see it."""
        return self._replace(edition=0) if self.edition else self

    def __str__(self) -> str:
        name, version, _ = self
        if name.startswith(PLATFORM_PREFIX):  # the platform knows no versions
            return shown_name(name)
        return f"{name}:{version}" if version else name


def drop_name(known: MutableMapping[Any, T], name: str) -> list[T]:
    """Drop the models called *name* from *known*, whose keys begin with a model's name.

    Returns the values that were dropped.
    """
    keys = [key for key in list(known) if key[0] == name]  # others may change it meanwhile
    return [known.pop(key) for key in keys if key in known]


TIER, TIERS = "tier", ("auto", "plain", "prepared", "mapped")
"""The parameter of a configuration that says how a model is loaded again, and its values."""


class ModelState(Enum):
    """The state of a model, in Triton's words."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"

    __hash__ = object.__hash__  # members are single objects; the hash of Enum is slow

    @property
    def words(self) -> str:
        """The state in sentences for people, such as ``"not loaded"``."""
        return "not loaded" if self is ModelState.UNAVAILABLE else self.value.lower()


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


def together(needs: Iterable[Need]) -> Need:
    """The sum of *needs*."""
    return Need(*map(sum, zip(*needs, strict=True)))


class Footprint(NamedTuple):
    """The memory of a loaded model, in bytes: its *weights*, and *other* memory.

    *mapped*: the part of both that is pages of a file, which the system may reclaim. *declared*:
    what the user says that the model takes in addition.
    """

    weights_nbytes: int = 0
    other_nbytes: int = 0
    mapped_nbytes: int = 0
    declared_nbytes: int = 0

    @property
    def nbytes(self) -> int:
        return self.weights_nbytes + self.other_nbytes + self.declared_nbytes

    def of(self, nbytes: int) -> Footprint:
        """This footprint, changed to *nbytes* in all."""
        own_nbytes = nbytes - self.declared_nbytes
        weights_nbytes = min(self.weights_nbytes, own_nbytes)
        return self._replace(
            weights_nbytes=weights_nbytes,
            other_nbytes=own_nbytes - weights_nbytes,
            mapped_nbytes=min(self.mapped_nbytes, own_nbytes),
        )

    @property
    def unseen_nbytes(self) -> int:
        """The part that does not show in the system's count of used memory."""
        return self.mapped_nbytes + self.declared_nbytes


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A declared input or output: its V2 *datatype*, and its *shape*, where -1 is any size.

    *format*: the image format in the configuration, ``"FORMAT_NHWC"``, ``"FORMAT_NCHW"`` or "".
    *reshape*: the shape inside the model, if it differs from the one that clients see. *missing*:
    an element of BYTES may be missing, which is ``None`` in the array. *any_rank*: how many
    dimensions it has is not known, and *shape* is (-1,), for what must name one.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    format: str = ""
    reshape: tuple[int, ...] | None = None
    missing: bool = False
    any_rank: bool = False

    @property
    def as_the_model_has_it(self) -> TensorSpec:
        """This tensor in the shape that it has inside the model."""
        return self if self.reshape is None else replace(self, shape=self.reshape, reshape=None)

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """True if a tensor of this *shape* fits the declaration."""
        return self.any_rank or _accepts(self.shape, shape)


@lru_cache(4096)  # a model's requests have few shapes: this takes a fifth of the time
def _accepts(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True if a tensor of *shape* fits the shape *declared*, where -1 is any size."""
    if len(shape) != len(declared):
        return False
    return all(want in (got, -1) for want, got in zip(declared, shape, strict=True))


HIGHEST_VERSION = 2**63 - 1  # which Triton's clients can name
A_VERSION = f"a number from 1 to {HIGHEST_VERSION}, no leading zeros"
_VERSION = re.compile("[1-9][0-9]{0,18}")


def is_version(text: str) -> bool:
    """True if *text* is the number of a version, as folders and clients write it."""
    return bool(_VERSION.fullmatch(text)) and int(text) <= HIGHEST_VERSION


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """The rule for the served versions of a model (Triton's version_policy).

    The *latest* highest ones, all if *latest* is 0, or only the *specific* ones.
    """

    latest: int = 1
    specific: tuple[int, ...] = ()

    def choose(self, versions: tuple[int, ...]) -> tuple[int, ...]:
        """The served versions among *versions*, ascending."""
        ordered = tuple(sorted(versions))
        if self.specific:
            return tuple(version for version in ordered if version in self.specific)
        return ordered[-self.latest :] if self.latest else ordered


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options of ONNX Runtime in a configuration.

    *intra_threads*, *inter_threads*: threads of one run; 0 is one for each core, ``None`` the
    server's choice. *parallel*: nodes of a graph run at the same time. *arena*,
    *memory_pattern*: how memory on the CPU is allocated. *device_allocator*: weights are not
    allocated in the arena. *shrinkage*: the devices whose arenas shrink after each run.
    *optimization*: ``"all"``, ``"extended"``, ``"basic"`` or ``"none"``. *cuda*: options of the
    CUDA provider; *accelerator*: those of them that were given for an execution accelerator.
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
    """The limits of a queue: *most* requests (0: any number), each for *timeout_s* (0: no limit).

    *may_override*: a request may set a shorter timeout. After the timeout a request is refused
    or, if the policy *delays*, runs after all others of its priority.
    """

    most: int = 0
    timeout_s: float = 0.0
    may_override: bool = False
    delays: bool = False


@dataclass(frozen=True, slots=True)
class Batching:
    """How requests are run in batches: of *preferred* sizes, for which they wait *delay_s*.

    *ordered*: they are answered in the order in which they came. *levels*: the number of
    priorities, of which 1 is the highest; a request without one has the *default_level*. *policy*
    is for the queue of each level, unless *policies* has another one for it.
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
    """How requests run on a model: so many *instances* at once, with or without *batching*.

    0 instances are as many as there are threads.
    """

    instances: int
    batching: Batching | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an ensemble, in which a *model* runs; its *number* counts from 1.

    A *version* of ``None`` is the latest one. *inputs* and *outputs*: names of the ensemble's
    tensors, by the model's own names for them.
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
        return f"step {self.number} ({shown_name(self.model)})"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The *steps* that a request to an ensemble goes through; other models run them.

    They are in the order of their runs: each comes after those whose tensors it takes.
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
    """An input of a sample: its V2 *datatype*, and its *shape* without the batch dimension.

    *data* is ``"zero"``, ``"random"``, or a file with the bytes of one element of the batch.
    """

    datatype: str
    shape: tuple[int, ...]
    data: str | Path


@dataclass(frozen=True, slots=True)
class WarmUpSample:
    """Inputs on which a model runs *count* times before it is READY.

    *batch_size* is used only if the model takes batches.
    """

    name: str
    batch_size: int
    count: int
    inputs: Mapping[str, WarmUpInput]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The honoured part of a model's configuration.

    *inputs*, *outputs*: empty if only the model file declares them; their shapes have the batch
    dimension if *max_batch_size* is above 0. *labels*: the classes of an output, in order, read
    from its file in *label_filenames*. *parameters*: options of ``image_forms``, ``tier``, those
    in *engine*, and any others; *ignored* names the fields and parameters that have no effect.
    *warm_up*: samples that run before the model is READY. *instances*: how many runs go on at
    once, 0 for the server's choice. *placed*: the wanted device, ``"CPU"``, ``"GPU"`` or "".
    *metric_tags*: further labels of the model's metrics. *pinned_memory*: whether inputs and
    outputs may go through pinned memory, which this server never uses.
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

    @property
    def warm_up_files(self) -> tuple[Path, ...]:
        """The files that the samples in *warm_up* are read from."""
        given = (each.data for sample in self.warm_up for each in sample.inputs.values())
        return tuple(data for data in given if isinstance(data, Path))

    @property
    def tier(self) -> str:
        """How the model is loaded again, one of ``TIERS``.

        ``"plain"``: as the first time. ``"prepared"``: faster. ``"mapped"``: faster still, with
        slower runs. ``"auto"``: prepared, if the model is large and was loaded before.
        """
        return self.parameters.get(TIER, "auto")


TAKEN = ("parameters", "id", "headers")
"""What a function may ask for of a request, beside its inputs, by the names of its parameters.

The parameters are a dict. So are the headers, or the metadata of gRPC: texts, by names in lower
case; empty where there are none. The id is a text.
"""


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A Python callable that is served as a model: it is called with an array for each input.

    *max_batch_size*: if above 0, the first dimension of all tensors is a batch of at most so many,
    and requests that wait run together, as *batching* says. *place*: where it is defined, for
    errors. *streams*: it is a generator function, and each value that it yields is an answer.
    *takes*: those of ``TAKEN`` by which it is also called. *columns*: see ``Signature``. *steady*:
    it calls no other model, and the time of a run depends on the size of its inputs only, as of an
    estimator. *concurrent*: how many of its runs go on at once, 0 for any number; a generator runs
    while it computes its next answer. *some*: is called instead where it is there, with the outputs
    that are wanted and the inputs by name; it may leave out other outputs. *alike*: only requests
    run together of whose inputs it tells the same, since the function takes others another way.
    """

    function: Callable[..., Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nbytes: int = 0
    max_batch_size: int = 0
    batching: Batching | None = None
    place: str = ""
    streams: bool = False
    takes: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    steady: bool = False
    concurrent: int = 1
    some: Callable[[Sequence[str], Mapping[str, Any]], Mapping[str, Any]] | None = None
    alike: Callable[[Mapping[str, Any]], Hashable] | None = None

    @property
    def schedule(self) -> Schedule | None:
        """How its requests run; ``None`` if each runs at once, and for a generator."""
        if self.streams or not (self.concurrent or self.batching):
            return None
        return Schedule(self.concurrent, self.batching)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The *origin* of a model: a file, a Python callable, or other models.

    *folder*: the temporary one that the file is in, if it came with a load.
    """

    id: ModelId
    config: ModelConfig
    origin: Path | FunctionModel | Ensemble
    folder: OwnFolder | None = None


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
    """The *inputs* and *outputs* of a model by name, in the model's own order.

    *labels*: the names of an output's classes, in order. *image_forms*: the inputs that also take
    encoded images. *columns*: the names of the columns of the only input, where that is a matrix
    whose columns have names.
    """

    platform: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    max_batch_size: int = 0
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image_forms: Mapping[str, ImageForm] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @property
    def main_input(self) -> TensorSpec | None:
        """The only input, or the only one that is not optional; ``None`` if there are several."""
        needed = [*(self.required if len(self.inputs) > 1 else self.inputs).values()]
        return needed[0] if len(needed) == 1 else None

    @property
    def required(self) -> dict[str, TensorSpec]:
        """The inputs that are not optional."""
        return {name: spec for name, spec in self.inputs.items() if not spec.optional}


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
"""The prefix of the names of models that a SageMaker platform loaded; no other name has it."""


def shown_name(name: str) -> str:
    """*name* in texts for people: of a model that a platform loaded, the platform's own name."""
    if not name.startswith(PLATFORM_PREFIX):
        return name
    quoted = name.removeprefix(PLATFORM_PREFIX)
    called = unquote(quoted)
    return quoted if _UNSPEAKABLE.search(called) else called


def check_name(name: str) -> str:
    """The *name*, if it can be one; else ``ModelNotFound``.

    Names reach folders, so a part that climbs out of one, and a NUL, never pass.
    """
    parts = name.replace("\\", "/").split("/")
    if _UNSPEAKABLE.search(name) or any(part in ("", ".", "..") for part in parts):
        raise ModelNotFound(f"{name!r} cannot be the name of a model")
    return name
