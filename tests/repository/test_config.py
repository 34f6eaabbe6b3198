"""config.pbtxt: what is read, and what is refused, by name."""

import os
from pathlib import Path

import pytest
from configs import read, refusal

from workbench.errors import LoadFailed, ModelNotSupported
from workbench.model import (
    Batching,
    EngineOptions,
    ModelConfig,
    QueuePolicy,
    TensorSpec,
    VersionPolicy,
    WarmUpInput,
    WarmUpSample,
)
from workbench.repository import config
from workbench.repository.config import ConfigFiles, read_config
from workbench.tensor import DATATYPES


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


def tensor(text: str) -> str:
    return f'input {{ name: "x" data_type: TYPE_FP32 {text} }}'


def reshaped(dims: str, shape: str) -> str:
    return tensor(f"dims: [{dims}] reshape {{ shape: [{shape}] }}")


def labelled(filename: str) -> str:
    return f'output {{ name: "y" data_type: TYPE_FP32 dims: 1 label_filename: "{filename}" }}'


@pytest.mark.parametrize("text", [None, "", "  \n# a comment\n", 'name: "m"'])
def test_defaults(folder: Path, text: str | None) -> None:
    """Without a file, or with an empty one, the defaults count and the folder's name."""
    expected = ModelConfig("m")
    assert (read_config(folder) if text is None else read(folder, text)) == expected
    assert (expected.max_batch_size, expected.inputs, expected.outputs) == (0, (), ())
    assert (expected.model_filename, expected.labels) == ("model.onnx", {})


def test_a_folder_is_no_configuration(folder: Path) -> None:
    """A folder called config.pbtxt is not one."""
    (folder / "config.pbtxt").mkdir()
    assert read_config(folder) == ModelConfig("m")


def test_a_whole_configuration(folder: Path) -> None:
    """Everything that is honoured is read, batch dimension and labels included."""
    (folder / "labels.txt").write_text("cat\nhund ä\n", encoding="utf-8")
    config = read(
        folder,
        """
        name: "m"  # of the folder
        platform: "onnxruntime_onnx"
        backend: "onnxruntime"
        max_batch_size: 8
        default_model_filename: "net.onnx"
        input [
          { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] },
          { name: "mask" data_type: TYPE_BOOL dims: [ -1 ] optional: true }
        ]
        output { name: "y" data_type: TYPE_STRING dims: [ ] label_filename: "labels.txt" }
        version_policy: { specific { versions: 3 versions: 1 } }
        parameters { key: "image_order" value { string_value: "RGB" } }
        """,
    )
    assert config == ModelConfig(
        "m",
        8,
        (TensorSpec("x", "FP32", (-1, 3, -1)), TensorSpec("mask", "BOOL", (-1, -1), optional=True)),
        (TensorSpec("y", "BYTES", (-1,)),),
        VersionPolicy(specific=(3, 1)),
        "net.onnx",
        {"y": ("cat", "hund ä")},
        {"image_order": "RGB"},
        {"y": "labels.txt"},
    )


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype(folder: Path, datatype: str) -> None:
    """Every datatype has Triton's name for it, and BYTES is its TYPE_STRING."""
    name = "STRING" if datatype == "BYTES" else datatype
    config = read(folder, f'input {{ name: "x" data_type: TYPE_{name} dims: 2 }}')
    assert config.inputs == (TensorSpec("x", datatype, (2,)),)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("latest {}", VersionPolicy(latest=1)),
        ("latest { num_versions: 3 }", VersionPolicy(latest=3)),
        ("all {}", VersionPolicy(latest=0)),
        ("specific { versions: [ 5 ] }", VersionPolicy(specific=(5,))),
        ("", VersionPolicy(latest=1)),
    ],
)
def test_version_policies(folder: Path, text: str, policy: VersionPolicy) -> None:
    """The three policies are read, and an empty one is the latest version."""
    assert read(folder, f"version_policy {{ {text} }}").version_policy == policy


@pytest.mark.parametrize("field", ['runtime: "x"', "model_operations { }"])
def test_what_is_not_honoured_is_named(folder: Path, field: str) -> None:
    """A field that is not honoured is refused by its name."""
    name = field.split(maxsplit=1)[0].rstrip(":")
    told = f"field {name!r} is not honoured here: leave it out"
    assert refusal(folder, f'name: "m" {field}') == told


@pytest.mark.parametrize(
    ("text", "name", "what"),
    [
        ("batch_input { }", "batch_input", "ragged batches"),
        ("input { allow_ragged_batch: true }", "input.allow_ragged_batch", "ragged batches"),
        ("sequence_batching { }", "sequence_batching", "sequences of requests"),
        (
            "model_transaction_policy { decoupled: true }",
            "model_transaction_policy.decoupled",
            "models that give several answers, or none, to one request",
        ),
    ],
)
def test_what_only_triton_serves(folder: Path, text: str, name: str, what: str) -> None:
    """What this server does not have is another error, each time that it is read."""
    files = ConfigFiles()
    (folder / "config.pbtxt").write_text(text)
    for _ in range(2):
        with pytest.raises(ModelNotSupported, match=f"{name!r} is not honoured here: no {what}"):
            files.read(str(folder))


@pytest.mark.parametrize(
    ("text", "ignored"), [("{ }", ()), ("{ enable: true }", ("field 'response_cache.enable'",))]
)
def test_response_cache(folder: Path, text: str, ignored: tuple[str, ...]) -> None:
    """A model that asks for Triton's response cache is served without, and that is told."""
    assert read(folder, f"response_cache {text}").ignored == ignored


def test_metric_tags(folder: Path) -> None:
    """They are read, as the labels that the model's metrics have too."""
    assert read(folder, 'metric_tags { key: "team" value: "b" }').metric_tags == {"team": "b"}


@pytest.mark.parametrize("name", ["model", "le", "1a", "a b", "", "__a", "é"])
def test_metric_tags_that_are_no_labels(folder: Path, name: str) -> None:
    """A tag that cannot be the name of a label, or is that of one of ours, is refused."""
    told = refusal(folder, f'metric_tags {{ key: "{name}" value: "b" }}')
    assert told == f"metric_tags has {name!r}, which cannot be the name of a label"


@pytest.mark.parametrize("field", ["nonsense: 1", "max_batchsize: 8"])
def test_what_is_no_field_is_named(folder: Path, field: str) -> None:
    """What is misspelt is refused by its name and its place."""
    name = field.partition(":")[0]
    message = refusal(folder, f'name: "m"\n{field}')
    assert message.startswith("2:1 : ")
    assert f'no field named "{name}"' in message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("input { is_shape_tensor: true }", "input.is_shape_tensor"),
        ("input { } output { is_shape_tensor: true }", "output.is_shape_tensor"),
        ("optimization { priority: PRIORITY_MAX }", "optimization.priority"),
        ("optimization { cuda { busy_wait_events: true } }", "optimization.cuda.busy_wait_events"),
        ("optimization { cuda { graphs: true } }", "optimization.cuda.graphs"),
        ("optimization { cuda { graph_spec { batch_size: 1 } } }", "optimization.cuda.graph_spec"),
        ("instance_group [ { passive: true } ]", "instance_group.passive"),
        ("instance_group [ { rate_limiter { } } ]", "instance_group.rate_limiter"),
    ],
)
def test_what_is_not_honoured_within_a_field(folder: Path, text: str, name: str) -> None:
    """What is not honoured of a field that is, is refused by the names on the way to it."""
    assert refusal(folder, text) == f"field {name!r} is not honoured here: leave it out"


@pytest.mark.parametrize(
    "text",
    [
        "model_transaction_policy { decoupled: false }",
        "response_cache { enable: false }",
        "optimization { graph { level: 0 } }",
        "instance_group [ ] model_warmup [ ]",
        'runtime: ""',
    ],
)
def test_what_asks_for_nothing(folder: Path, text: str) -> None:
    """A field that is set to its default asks for nothing, and is let through."""
    assert read(folder, text) == ModelConfig("m")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (("intra_op_thread_count", "4"), {"intra_threads": 4}),
        (("intra_op_thread_count", "0"), {"intra_threads": 0}),
        (("inter_op_thread_count", "2"), {"inter_threads": 2}),
        (("execution_mode", "1"), {"parallel": True}),
        (("enable_mem_arena", "1"), {"arena": True}),
        (("enable_mem_arena", "true"), {"arena": True}),
        (("enable_mem_pattern", "0"), {"memory_pattern": False}),
        (("session.use_device_allocator_for_initializers", "0"), {"device_allocator": False}),
        (("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:0"),
         {"shrinkage": ("cpu:0", "gpu:0")}),
        (("gpu_mem_limit", "4294967200"), {"cuda": {"gpu_mem_limit": "4294967200"}}),
        (("arena_extend_strategy", "0"), {"cuda": {"arena_extend_strategy": "kNextPowerOfTwo"}}),
        (("cudnn_conv_algo_search", "0"), {"cuda": {"cudnn_conv_algo_search": "EXHAUSTIVE"}}),
        (("do_copy_in_default_stream", "0"), {"cuda": {"do_copy_in_default_stream": "0"}}),
    ],
)  # fmt: skip
def test_engine_options(folder: Path, text: tuple[str, str], options: dict[str, object]) -> None:
    """The parameters of Triton's ONNX Runtime backend set the engine's options."""
    config = read(folder, parameter(*text))
    assert config.engine == EngineOptions(**options)
    assert config.parameters == dict([text])


@pytest.mark.parametrize(
    ("level", "optimization"), [(-1, "basic"), (0, "all"), (1, "extended"), (2, "none")]
)
def test_levels_of_optimization(folder: Path, level: int, optimization: str) -> None:
    """The level of the graph's optimization is one of Triton's four."""
    text = f"optimization {{ graph {{ level: {level} }} }}"
    assert read(folder, text).engine.optimization == optimization


def test_the_accelerator(folder: Path) -> None:
    """The options of the execution accelerator 'cuda' are those of the CUDA provider."""
    text = """optimization { execution_accelerators { gpu_execution_accelerator : [ {
        name: "cuda" parameters { key: "cudnn_conv_use_max_workspace" value: "1" } } ] } }"""
    engine = read(folder, text).engine
    assert engine.cuda == engine.accelerator == {"cudnn_conv_use_max_workspace": "1"}


def test_an_option_that_is_said_twice(folder: Path) -> None:
    """An option of the accelerator wins over the parameter of its name."""
    text = parameter("gpu_mem_limit", "5") + accelerator("gpu", "cuda", "gpu_mem_limit")
    assert read(folder, text).engine.cuda == {"gpu_mem_limit": "1"}


def accelerator(kind: str, name: str, option: str = "x") -> str:
    return f"""optimization {{ execution_accelerators {{ {kind}_execution_accelerator {{
        name: "{name}" parameters {{ key: "{option}" value: "1" }} }} }} }}"""


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("intra_op_thread_count", "-1", "a number up to 1024"),
        ("intra_op_thread_count", "1025", "a number up to 1024"),
        ("intra_op_thread_count", "٣", "a number up to 1024"),
        ("execution_mode", "2", "one of 0, 1"),
        ("enable_mem_arena", "", "one of 0, 1, false, true"),
        ("memory.enable_memory_arena_shrinkage", "x", "like cpu:0;gpu:0"),
        ("memory.enable_memory_arena_shrinkage", "cpu:٠", "like cpu:0;gpu:0"),
        ("tier", "fast", "one of auto, plain, prepared, mapped"),
        ("image_order", "GBR", "RGB or BGR"),
        ("image_scale", "x", "a number above 0"),
    ],
)
def test_values_that_cannot_be(folder: Path, name: str, value: str, rule: str) -> None:
    """A value that a parameter cannot have is refused, with those that it can."""
    told = f"parameter {name!r} is {value!r}; it must be {rule}"
    assert refusal(folder, parameter(name, value)) == told


@pytest.mark.parametrize(
    ("batch", "dims", "shape", "read_as"),
    [
        (0, "1", "", ()),
        (8, "1", "", (-1,)),
        (8, "12", "3, 4", (-1, 3, 4)),
        (0, "-1, 4", "-1, 2, 2", (-1, 2, 2)),
        (0, "-1, 4, -1", "4, -1, -1", (4, -1, -1)),
    ],
)
def test_reshape(folder: Path, batch: int, dims: str, shape: str, read_as: tuple[int, ...]) -> None:
    """A tensor may have another shape in the model than for its clients."""
    taken = reshaped(dims, shape)
    given = taken.replace("input", "output")
    config = read(folder, f"max_batch_size: {batch} {taken} {given}")
    for (spec,) in (config.inputs, config.outputs):
        assert spec.reshape == spec.as_the_model_has_it.shape == read_as
        assert spec.shape[batch > 0 :] == tuple(int(dim) for dim in dims.split(","))


@pytest.mark.parametrize(
    "text", ["optimization { cuda { } }", "optimization { cuda { graphs: false } }"]
)
def test_graphs(folder: Path, text: str) -> None:
    """A configuration may say that it wants no CUDA graphs, which there are not."""
    assert read(folder, text) == read(folder, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name: "other"', "the name 'other' is not that of the folder, 'm'"),
        ('platform: "pytorch_libtorch"',
         "platform 'pytorch_libtorch' is not served here: export the model to ONNX"),
        ('backend: "tensorrt"', "backend 'tensorrt' is not served here: export the model to ONNX"),
        ('backend: "python"',
         "backend 'python' is not served here: make its code a function, by @wb.model"),
        ("max_batchsize: 8",
         ('1:1 : Message type "inference.ModelConfig" has no field named "max_batchsize"; '
         "did you mean 'max_batch_size'?")),
        ("dynamic_batching { max_queue_delay_us: 8 }",
         ('1:20 : Message type "inference.ModelDynamicBatching" has no field named '
         "\"max_queue_delay_us\"; did you mean 'max_queue_delay_microseconds'?")),
        ("max_batch_size: -1", "max_batch_size -1 is below 0"),
        ("input { data_type: TYPE_FP32 dims: 1 }", "an input or output has no name"),
        ("input { data_type: TYPE_FP32 } input { dims: 1 }", "an input or output has no name"),
        ('input { name: "x" dims: 1 }', "'x' has no data_type"),
        ('output { name: "y" data_type: TYPE_INVALID }', "'y' has no data_type"),
        ('input { name: "x" data_type: 99 dims: 1 }', "'x' has no data_type"),
        ('input { name: "x" data_type: TYPE_FP32 } input { name: "x" data_type: TYPE_INT8 }',
         "input or output 'x' is declared twice"),
        ('output { name: "x" data_type: TYPE_FP32 } output { name: "x" data_type: TYPE_FP32 }',
         "input or output 'x' is declared twice"),
        ("version_policy { specific { } }", "version_policy names no specific version"),
        ("optimization { graph { level: 3 } }",
         "optimization.graph.level is 3; it must be -1, 0, 1 or 2"),
        (accelerator("gpu", "tensorrt"),
         "execution accelerator 'tensorrt' is not served here: leave it out; cuda is, on GPUs"),
        (accelerator("cpu", "openvino"),
         "execution accelerator 'openvino' is not served here: leave it out; cuda is, on GPUs"),
        (accelerator("cpu", "cuda"),
         "execution accelerator 'cuda' is not served here: leave it out; cuda is, on GPUs"),
        (accelerator("gpu", "cuda", "device_id"),
         "option 'device_id' of accelerator 'cuda' is chosen by the server"),
        ('parameters { key: "image_order" }',
         "parameter 'image_order' is ''; it must be RGB or BGR"),
        (reshaped("12", "3, 5"), "reshape of 'x' to [3, 5] does not fit [12]"),
        (reshaped("12", "3, 2"), "reshape of 'x' to [3, 2] does not fit [12]"),
        (reshaped("12", "12, 0"), "reshape of 'x' to [12, 0] does not fit [12]"),
        (reshaped("2", "-2, -1"), "reshape of 'x' to [-2, -1] does not fit [2]"),
        (reshaped("-1, 4", "4"),
         "reshape of 'x' to [4] must have as many dims of any size as [-1, 4]"),
        (tensor("dims: [3, 4] format: FORMAT_NHWC"), "'x' has a format, but 2 dims instead of 3"),
        (tensor("dims: [1, 1, 3, 4, 4] format: 2"), "'x' has a format, but 5 dims instead of 3"),
        (tensor("dims: [3, 4, 4] format: 7"), "'x' has an unknown format, 7"),
        ("instance_group { count: -1 }",
         "instance_group has count -1 and kind 0, which cannot be"),
        ("instance_group { kind: 77 }",
         "instance_group has count 0 and kind 77, which cannot be"),
        ("instance_group { count: 1025 }", "instance_group has 1025 instances; at most 1024 go"),
    ],
)  # fmt: skip
def test_contradictions(folder: Path, text: str, message: str) -> None:
    """What is against itself, its folder or this server is refused with both sides named."""
    assert refusal(folder, text) == message


@pytest.mark.parametrize(
    ("batch", "dims", "declared", "read_as"),
    [
        (0, "[ 1, 4, 4, 3 ]", "FORMAT_NHWC", "FORMAT_NHWC"),
        (8, "[ 3, 4, 4 ]", "FORMAT_NCHW", "FORMAT_NCHW"),
        (0, "[ 3, 4, 4 ]", "FORMAT_NCHW", "FORMAT_NCHW"),
        (8, "[ 3, 4, 4 ]", "FORMAT_NONE", ""),
        (0, "[ 3 ]", "0", ""),
    ],
)
def test_formats(folder: Path, batch: int, dims: str, declared: str, read_as: str) -> None:
    """An input's format is kept under Triton's name; its dims are an image's, or a batch's."""
    config = read(
        folder,
        f'max_batch_size: {batch} input {{ name: "x" data_type: TYPE_FP32 dims: {dims} '
        f"format: {declared} }}",
    )
    assert config.inputs[0].format == read_as


def test_parameters(folder: Path) -> None:
    """Parameters are text by name."""
    text = f"{parameter('image_scale', '0.5')} {parameter('image_order', 'BGR')}"
    assert read(folder, text).parameters == {"image_order": "BGR", "image_scale": "0.5"}


@pytest.mark.parametrize("name", ["image_mean", "Image_Order", "", "Execution_Mode"])
def test_parameters_that_are_not_known(folder: Path, name: str) -> None:
    """A parameter that means nothing here is kept, and its name is among the ignored."""
    config = read(folder, f"{parameter('image_order', 'RGB')} {parameter(name, 'x')}")
    assert config.parameters == {"image_order": "RGB", name: "x"}
    assert config.ignored == (f"parameter {name!r}",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("instance_group { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }", ["instance_group.gpus"]),
        ("instance_group { gpus: 0 } instance_group { gpus: 1 }", ["instance_group.gpus"]),
        ('instance_group { count: 2 name: "m_0" gpus: [ ] }', []),
        ("optimization { input_pinned_memory { enable: true } }", []),
    ],
)  # fmt: skip
def test_fields_without_effect(folder: Path, text: str, names: list[str]) -> None:
    """A field that changes nothing is among the ignored, once, unless each Triton prints it."""
    assert read(folder, text).ignored == tuple(f"field {name!r}" for name in names)


@pytest.mark.parametrize("value", ["auto", "plain", "prepared", "mapped"])
def test_tier(folder: Path, value: str) -> None:
    """How a model is loaded again can be chosen; by itself it is 'auto'."""
    assert read(folder, parameter("tier", value)).tier == value
    assert read(folder, "").tier == "auto"


@pytest.mark.parametrize("dim", [0, -2, -(2**63)])
@pytest.mark.parametrize("kind", ["input", "output"])
def test_dims(folder: Path, dim: int, kind: str) -> None:
    """A dimension is positive or -1."""
    text = f'{kind} {{ name: "x" data_type: TYPE_FP32 dims: [ 3, {dim} ] }}'
    assert refusal(folder, text) == "dims of 'x' must be positive, or -1 for any size"


@pytest.mark.parametrize(
    "filename", ["a/b.onnx", "../m.onnx", "/etc/passwd", "..", ".", "a/", "./a", "a\\000b"]
)
def test_the_model_file_is_in_the_folder(folder: Path, filename: str) -> None:
    """The model's file is named by a plain name, which cannot lead out of its folder."""
    (folder / "1").mkdir()
    message = refusal(folder, f'default_model_filename: "{filename}"')
    assert message.startswith("default_model_filename ")
    assert message.endswith(" is not a plain file name")


@pytest.mark.parametrize(
    "filename", ["../l.txt", "/etc/passwd", "..", ".", "nope.txt", "sub", "a\\000"]
)
def test_the_labels_are_in_the_folder(folder: Path, filename: str) -> None:
    """A label file is a file of the model's folder."""
    (folder / "sub").mkdir()
    (folder.parent / "l.txt").write_text("secret")
    assert refusal(folder, labelled(filename)).endswith("is not a file of the model's folder")


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (b"", ()),
        (b"a", ("a",)),
        (b"a\r\nb\r\n", ("a", "b")),
        (b"a\n\nb", ("a", "", "b")),
        ("a\x0cb\nc\u2028d\n".encode(), ("a\x0cb", "c\u2028d")),
        ("ä\n模".encode(), ("ä", "模")),
    ],
)
def test_labels(folder: Path, data: bytes, labels: tuple[str, ...]) -> None:
    """Labels are the lines of their file, empty ones too, in the classes' order."""
    (folder / "l.txt").write_bytes(data)
    assert read(folder, labelled("l.txt")).labels == {"y": labels}


def test_a_byte_order_mark(folder: Path) -> None:
    """A byte order mark, which editors on Windows write, is no part of a text."""
    (folder / "l.txt").write_bytes(b"\xef\xbb\xbfcat\ndog\n")
    (folder / "config.pbtxt").write_bytes(b"\xef\xbb\xbf" + labelled("l.txt").encode())
    assert read_config(folder).labels == {"y": ("cat", "dog")}


def test_labels_that_are_not_text(folder: Path) -> None:
    """A label file that is not UTF-8 is refused."""
    (folder / "l.txt").write_bytes(b"\xff\xfe")
    told = "label_filename 'l.txt' is not UTF-8: invalid start byte"
    assert refusal(folder, labelled("l.txt")) == told


def test_too_many_labels(folder: Path) -> None:
    """A label file of more than 16 MiB is not read."""
    with (folder / "l.txt").open("wb") as file:
        file.truncate((16 << 20) + 1)
    told = "label_filename 'l.txt' has more than the 16.0 MiB that are read"
    assert refusal(folder, labelled("l.txt")) == told


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file(folder: Path, kind: str) -> None:
    """A link that leads nowhere, or a pipe, is no configuration, and not the lack of one."""
    path = folder / "config.pbtxt"
    path.symlink_to("nowhere") if kind == "link" else os.mkfifo(path)
    (folder / "1").mkdir()
    for ask in (read_config, ConfigFiles().read):
        with pytest.raises(LoadFailed, match=r"it is not a readable file, or a link to nothing$"):
            ask(folder)
    assert not ConfigFiles().can_skip(str(folder))


def test_a_configuration_that_is_too_large(folder: Path) -> None:
    """More than a MiB is not read: to parse it takes as long as it is large."""
    assert refusal(folder, "#" * (2**20 + 1)) == "it has more than the 1.0 MiB that are read"
    assert read(folder, "#" * 2**20) == ModelConfig("m")


def test_what_does_not_parse_is_parsed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found wrong is told again without another look, until the file changes."""
    (folder / "config.pbtxt").write_text("nonsense")
    files = ConfigFiles()
    told = []
    for _ in range(2):
        with pytest.raises(LoadFailed) as caught:
            files.read(str(folder))
        told.append(str(caught.value))
        monkeypatch.setattr(config, "text_format", None)
    assert told[0] == told[1]
    monkeypatch.undo()
    (folder / "config.pbtxt").write_text("max_batch_size: 8")
    assert files.read(str(folder)).max_batch_size == 8


@pytest.mark.parametrize(
    "text",
    ["}", "{", "name", 'name: "m', "name: m", "name: 5", "max_batch_size: 1.5", "\0", b"\xff\xfe",
     "max_batch_size: 99999999999", "input { data_type: TYPE_FLOAT }", 'name: "m" name: "m"',
     "version_policy { all {} latest {} }", 'name: "\\377"', "[a.b.c]: 1", "input: 5",
     "input " * 1000, "input {" * 5000, "input { data_type: 99999999999 }",
     "input { data_type: -1 }", "x: \x0b\x1c\x85"],
)  # fmt: skip
def test_what_does_not_parse(folder: Path, text: str | bytes) -> None:
    """What protobuf's text format cannot read is a LoadFailed of one line."""
    assert refusal(folder, text)


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that the system refuses to read is a LoadFailed with the reason."""

    def refuse(self: Path, **_: str) -> str:
        raise PermissionError(13, "Permission denied")

    (folder / "config.pbtxt").write_text("")
    monkeypatch.setattr("workbench.repository.config.Path.read_text", refuse)
    with pytest.raises(LoadFailed, match="Permission denied"):
        read_config(folder)


def test_labels_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that the system refuses to read are a LoadFailed with the reason."""
    real = Path.read_text

    def refuse(self: Path, **how: str) -> str:
        if self.name == "l.txt":
            raise PermissionError(13, "Permission denied")
        return real(self, **how)

    (folder / "l.txt").write_text("")
    monkeypatch.setattr("workbench.repository.config.Path.read_text", refuse)
    assert "Permission denied" in refusal(folder, labelled("l.txt"))


def test_a_linked_folder_has_its_own_name(folder: Path) -> None:
    """The name of a linked model is the link's."""
    link = folder.parent / "link"
    link.symlink_to(folder)
    (folder / "config.pbtxt").write_text("")
    assert read_config(link).name == "link"


def test_a_unicode_name(tmp_path: Path) -> None:
    """The name in the file may be any text that the folder is called."""
    folder = tmp_path / "ä 模型"
    folder.mkdir()
    assert read(folder, 'name: "ä 模型"').name == "ä 模型"
    assert read(folder, r'name: "\303\244 模型"').name == "ä 模型"


# ── model_warmup ────────────────────────────────────────────────────────────


def warm_up(inputs: str, rest: str = "batch_size: 2 count: 3") -> str:
    return f'model_warmup {{ name: "s" {rest} inputs {{ key: "x" value {{ {inputs} }} }} }}'


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("data_type: TYPE_FP32 dims: [2, 3] zero_data: true", WarmUpInput("FP32", (2, 3), "zero")),
        ("data_type: TYPE_STRING random_data: true", WarmUpInput("BYTES", (), "random")),
    ],
)
def test_warm_up(folder: Path, text: str, given: WarmUpInput) -> None:
    """What a model is to run on first is read: how often, and on what."""
    assert read(folder, warm_up(text)).warm_up == (WarmUpSample("s", 2, 3, {"x": given}),)


def test_warm_up_with_a_file(folder: Path) -> None:
    """Data may come from a file of the model's own folder for that."""
    (folder / "warmup").mkdir()
    (folder / "warmup" / "x.bin").write_bytes(bytes(4))
    text = warm_up('data_type: TYPE_FP32 dims: 1 input_data_file: "x.bin"')
    (sample,) = read(folder, text).warm_up
    assert sample.inputs["x"].data == folder / "warmup" / "x.bin"


def test_samples_without_a_batch_are_none(folder: Path) -> None:
    """A batch_size of 0 skips the sample, as Triton does; a count of 0 is one run."""
    zeros = "data_type: TYPE_FP32 dims: 1 zero_data: true"
    assert read(folder, warm_up(zeros, "count: 3")).warm_up == ()
    assert read(folder, warm_up(zeros, "batch_size: 1")).warm_up[0].count == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (warm_up("dims: 1 zero_data: true"), "input 'x' has no data_type"),
        (warm_up("data_type: TYPE_FP32 dims: -1 zero_data: true"),
         "dims of input 'x' must be positive, not [-1]"),
        (warm_up("data_type: TYPE_FP32 dims: 1"),
         "input 'x' has neither zero_data, random_data nor input_data_file"),
        (warm_up("data_type: TYPE_FP32 dims: 1 zero_data: false"),
         "input 'x' has neither zero_data, random_data nor input_data_file"),
        (
            warm_up('data_type: TYPE_FP32 dims: 1 input_data_file: "../config.pbtxt"'),
            (
                "input_data_file '../config.pbtxt' of input 'x' is not a file of the model's "
                "folder 'warmup'"
            ),
        ),
        (warm_up('data_type: TYPE_FP32 dims: 1 input_data_file: "gone"'),
         "input_data_file 'gone' of input 'x' is not a file of the model's folder 'warmup'"),
        (warm_up("data_type: TYPE_FP32 dims: [1000000, 1000000] zero_data: true"),
         "its inputs are larger than 256 MiB"),
        (warm_up("data_type: TYPE_FP32 dims: 1000000 zero_data: true", "batch_size: 1000"),
         "its inputs are larger than 256 MiB"),
        (warm_up("data_type: TYPE_FP32 dims: 1 zero_data: true", "batch_size: 1 count: 10001"),
         "count 10001 is above 10000"),
    ],
)  # fmt: skip
def test_warm_ups_that_cannot_be(folder: Path, text: str, message: str) -> None:
    """A sample that cannot be is refused with its name, and what is wrong with it."""
    assert refusal(folder, text) == f"model_warmup 's': {message}"


# ── dynamic_batching and instance_group ─────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "batching"),
    [
        ("", Batching()),
        ("preferred_batch_size: [ 4, 8 ]", Batching((4, 8))),
        ("max_queue_delay_microseconds: 1500", Batching(delay_s=0.0015)),
        ("preserve_ordering: true", Batching(ordered=True)),
        ("priority_levels: 3 default_priority_level: 2", Batching(levels=3, default_level=2)),
        (
            """default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 2000
            allow_timeout_override: true max_queue_size: 9 }""",
            Batching(policy=QueuePolicy(9, 0.002, may_override=True, delays=True)),
        ),
        (
            """priority_levels: 2 default_priority_level: 1
            priority_queue_policy { key: 2 value { max_queue_size: 1 } }""",
            Batching(levels=2, default_level=1, policies={2: QueuePolicy(1)}),
        ),
    ],
)
def test_dynamic_batching(folder: Path, text: str, batching: Batching) -> None:
    """How requests run together is read, field by field."""
    assert read(folder, f"max_batch_size: 8 dynamic_batching {{ {text} }}").batching == batching


def test_dynamic_batching_that_is_not_said(folder: Path) -> None:
    """As in Triton, a batch above 1 has it, unless inputs and outputs are both written out."""
    tensor = '{ name: "x" data_type: TYPE_FP32 dims: 1 }'
    for text in ("", f"input {tensor}", f"output {tensor}"):
        assert read(folder, f"max_batch_size: 8 {text}").batching == Batching()
    assert read(folder, f"max_batch_size: 8 input {tensor} output {tensor}").batching is None
    assert read(folder, "max_batch_size: 1").batching is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preferred_batch_size: [ 4, 9 ]",
         "preferred_batch_size 9 is not from 1 to max_batch_size, 8"),
        ("preferred_batch_size: [ 0 ]",
         "preferred_batch_size 0 is not from 1 to max_batch_size, 8"),
        ("priority_levels: 2",
         "default_priority_level is 0; it must be from 1 to priority_levels, 2"),
        ("default_priority_level: 1",
         "default_priority_level is 1; it must be from 1 to priority_levels, 0"),
        (
            """priority_levels: 1 default_priority_level: 1
            priority_queue_policy { key: 2 value { } }""",
            "priority_queue_policy has level 2; there are 1",
        ),
        ("priority_levels: 1000000000 default_priority_level: 1",
         "priority_levels 1000000000 is above 1000"),
    ],
)  # fmt: skip
def test_batching_that_cannot_be(folder: Path, text: str, message: str) -> None:
    """What contradicts itself is refused by the name of its field."""
    text = f"max_batch_size: 8 dynamic_batching {{ {text} }}"
    assert refusal(folder, text) == f"dynamic_batching.{message}"


@pytest.mark.parametrize(
    ("text", "instances", "placed"),
    [
        ("", 0, ""),
        ("instance_group [ { } ]", 0, ""),
        ("instance_group [ { count: 2 } ]", 2, ""),
        ("instance_group [ { count: 1024 } ]", 1024, ""),
        ("instance_group [ { count: 2 kind: KIND_CPU } ]", 2, "CPU"),
        ("instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0, 1 ] } ]", 1, "GPU"),
        ("instance_group [ { count: 1 kind: KIND_GPU }, { count: 2 kind: KIND_CPU } ]", 3, ""),
        ("instance_group [ { kind: KIND_MODEL } ]", 0, ""),
    ],
)
def test_instances(folder: Path, text: str, instances: int, placed: str) -> None:
    """The instances of all groups go at once; where, if all say the same."""
    config = read(folder, text)
    assert (config.instances, config.placed) == (instances, placed)
