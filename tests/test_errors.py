"""The errors: the tree that the docstring draws is the tree that there is."""

import errno
import inspect
import pickle
import re

import httpx
import pytest

import workbench
from workbench import errors
from workbench.exhaustion import is_exhaustion
from workbench.removed import REMOVED

PUBLIC = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and not name.startswith("_")
}


def drawn_tree() -> dict[str, str | None]:
    """Each class in the docstring's drawing, and the class it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^ {4}((?:│   |    )*)(?:[├└]── )?([A-Z]\w+)(?: {2,}|$)", line)
        if match is None:
            continue
        depth = 0 if "──" not in line else len(match[1]) // 4 + 1
        path[depth:] = [match[2]]
        parents[match[2]] = path[depth - 1] if depth else None
    return parents


def real_tree() -> dict[str, str | None]:
    return {
        name: None if cls.__base__ is Exception else cls.__bases__[0].__name__
        for name, cls in PUBLIC.items()
    }


def test_the_drawn_tree_is_the_real_one() -> None:
    """Every class of the module is drawn in its docstring, under its own parent, and no other."""
    assert drawn_tree() == real_tree()
    assert [name for name, parent in real_tree().items() if parent is None] == ["WorkbenchError"]


def test_the_tree_is_declared_in_its_order() -> None:
    """The classes stand in the module in the order in which they are drawn."""
    assert list(drawn_tree()) == list(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_class_says_what_it_means(name: str) -> None:
    """Every class has a sentence of its own."""
    doc = vars(PUBLIC[name])["__doc__"]
    assert doc.splitlines()[0].endswith(".")
    assert len({cls.__doc__ for cls in PUBLIC.values()}) == len(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_no_class_knows_a_wire(name: str) -> None:
    """No error carries a status code of a protocol."""
    assert not [attribute for attribute in dir(PUBLIC[name]("x")) if "status" in attribute]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_message_is_the_error(name: str) -> None:
    """An error reads as its message and survives pickling, with its class."""
    error = PUBLIC[name]("what is wrong")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is PUBLIC[name]
    assert str(again) == str(error) == "what is wrong"


def test_an_error_keeps_its_attributes() -> None:
    """A refusal for want of room carries its numbers, and a circle its models, through pickling."""
    error = errors.MemoryExhausted("no room", need_nbytes=3, budget_nbytes=2, too_large=True)
    again = pickle.loads(pickle.dumps(error))
    assert (again.need_nbytes, again.free_nbytes, again.budget_nbytes) == (3, 0, 2)
    assert again.too_large
    again = pickle.loads(pickle.dumps(errors.RunFailed("a asks a", circle=["a", "a"])))
    assert again.circle == ["a", "a"]
    assert pickle.loads(pickle.dumps(errors.QueueRefused("full", 5.2))).retry_after_s == 5.2
    assert errors.WaitedTooLong("late").retry_after_s == 1.0


def test_an_error_that_is_no_more_is_told() -> None:
    """The cure of an old class names one that is there."""
    gone = {name: cure for name, cure in REMOVED.items() if name.startswith("error ")}
    assert not {name.removeprefix("error ") for name in gone} & PUBLIC.keys()
    assert set(re.findall(r"catch (\w+)", " ".join(gone.values()))) <= PUBLIC.keys()


def test_frames_are_forgotten() -> None:
    """What an error and its causes came through is let go of, also where they cause each other."""
    first, second, third, fourth = (ValueError(number) for number in range(4))
    group = ExceptionGroup("all", [third, fourth])
    raised = (first, second, third, fourth, group)
    for error in raised:
        with pytest.raises(type(error)):
            raise error
        assert error.__traceback__ is not None
    first.__cause__, first.__context__, second.__cause__ = second, group, first
    errors.forget_frames(first)
    assert [error.__traceback__ for error in raised] == [None] * 5


def test_each_can_be_imported_from_the_package() -> None:
    """``from workbench import ModelNotFound`` works for each, and Tab offers them."""
    for name in PUBLIC:
        assert getattr(workbench, name) is getattr(errors, name)
        assert name in dir(workbench)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def named(name: str, *bases: type, told: str = "Allocation on device 0 failed") -> BaseException:
    """An error of a library's class of that *name*."""
    error: BaseException = type(name, bases, {})(told)
    return error


EXHAUSTIONS = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    errors.MemoryExhausted("m does not fit"),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 79.10 GiB in all"),
    RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("MPS backend out of memory (MPS allocated: 9.05 GB)"),
    named("OutOfMemoryError", RuntimeError),  # PyTorch
    named("OutOfMemoryError", MemoryError),  # CuPy
    named("ResourceExhaustedError", Exception),  # TensorFlow
    named("XlaRuntimeError", RuntimeError, told="RESOURCE_EXHAUSTED: Failed to allocate request"),
    named("CudaAPIError", Exception, told="[2] Call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"),
    named("RuntimeException", Exception, told="[ONNXRuntimeError] : 6 : std::bad_alloc"),
    named("Fail", Exception, told="bfc_arena.cc:376 Failed to allocate memory for requested"),
    caused(ValueError("the model failed"), RuntimeError("CUDA out of memory.")),
    ExceptionGroup("of tasks", [ValueError("x"), MemoryError()]),
]


@pytest.mark.parametrize("error", EXHAUSTIONS, ids=errors.class_and_line_of)
def test_memory_that_ran_out(error: BaseException) -> None:
    """What libraries raise for want of memory is known by its class, its words or its cause."""
    assert is_exhaustion(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        ValueError("a game about a robot that is out of memory"),
        KeyError("out of memory"),
        errors.InvalidRequest("there is no model 'out of memory'"),
        named("_InactiveRpcError", Exception, told="status = StatusCode.RESOURCE_EXHAUSTED"),
        OSError(errno.ENOSPC, "No space left on device"),
        caused(error := ValueError("its own cause"), error),
    ],
    ids=errors.class_and_line_of,
)
def test_memory_that_did_not_run_out(error: BaseException) -> None:
    """Errors of Python's special classes, and ours, may have such words for other reasons."""
    assert not is_exhaustion(error)


class Mute(Exception):
    """One whose message cannot be read."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\n  b"), "a b"),
        (ValueError(), ""),
        (Mute(), "its message cannot be read: __str__ raised ZeroDivisionError"),
    ],
)
def test_the_line_of_an_error(error: Exception, line: str) -> None:
    """What an error says is one line, also if it cannot say it."""
    assert errors.line_of(error) == line


def test_a_model_whose_error_has_no_message() -> None:
    """The answer names the model and the class, whatever that class does."""
    told = "mute:1 raised Mute: its message cannot be read: __str__ raised ZeroDivisionError"
    with workbench.Workbench(device="cpu", token="off") as server:

        @server.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def mute(x: object) -> object:
            raise Mute

        response = httpx.post(f"{server.url}/v2/models/mute/generate", json={"x": 1})
    assert (response.status_code, response.json()) == (500, {"error": told})
