"""``wb.serve``: modules of PyTorch and pipelines of transformers, with the real libraries.

These are 1.1 GB on disk and have an environment of their own: ``make frameworks``.
"""

import json
import re
from typing import Any

import numpy as np
import pytest

from workbench import Workbench
from workbench.errors import InvalidRequest, UsageError

torch = pytest.importorskip("torch", reason="PyTorch is not in this environment: make frameworks")


class Net(torch.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        layers = torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Dropout()
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(width, 3))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Two(torch.nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return {"sum": a + b, "difference": a - b}


class ToBfloat16(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.bfloat16()


def answer_of(module: Any, *arrays: Any) -> Any:
    """What *module* answers in eval mode, which is undone."""
    was_training = module.training
    with torch.inference_mode():
        found = module.eval()(*map(torch.from_numpy, arrays)).numpy()
    module.train(was_training)
    return found


def test_modules(wb: Workbench) -> None:
    """A module answers as in eval mode, for batches of any size, and stays as it was."""
    net = Net()
    served = wb.serve(net, example=torch.randn(1, 4))
    assert net.training
    assert repr(served) == (
        "net: a copy of 268 B of Net, by forward; x FP32 [-1, 4] -> output FP32 [-1, 3]"
    )
    for size in (1, 2, 7, 64):
        rows = np.random.default_rng(0).normal(size=(size, 4)).astype(np.float32)
        assert np.array_equal(wb.infer("net", rows), answer_of(net, rows))


def test_a_module_that_goes_on_training(wb: Workbench) -> None:
    """What is served is the module as it was; with copy=False, in eval mode, as it is."""
    net, rows = Net(), torch.randn(5, 4).numpy()
    before = answer_of(net, rows)
    wb.serve(net, example=torch.randn(2, 4))
    wb.serve(net, "itself", example=torch.randn(2, 4), copy=False)
    with torch.no_grad():
        net.layers[0].weight.add_(5)
    assert np.array_equal(wb.infer("net", rows), before)
    assert np.array_equal(wb.infer("itself", rows), answer_of(net, rows))
    assert net.training


class Large(torch.nn.Module):
    """It goes another way for large batches, for long rows, and where a size divides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2 if x.shape[0] <= 4 else torch.cat([part * 3 for part in x.split(32)])
        x = x[:, -16:] if x.shape[1] > 16 else x
        return x.sum(1) / max(x.shape[1], 10)


def test_modules_that_look_at_sizes(wb: Workbench) -> None:
    """Every size that the model says it takes has the module's own answer."""
    inputs = {"x": (torch.float32, ["rows", "time"])}
    wb.serve(Large(), "large", example=torch.randn(2, 3), inputs=inputs)
    for rows, time in ((1, 1), (4, 3), (5, 11), (70, 20)):
        x = torch.randn(rows, time)
        assert np.array_equal(wb.infer("large", x), Large()(x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_the_grad_mode_and_dtype_of_the_cell(wb: Workbench) -> None:
    """An encoder's padding has other answers without gradients: those of the cell are served."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])

    class Encode(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, x: Any, padding: Any) -> Any:
            return self.encoder(x, src_key_padding_mask=padding)

    with_gradients = Encode()(x, padding).detach().numpy()
    wb.serve(Encode(), "slow", example=(x, padding))
    with torch.no_grad():
        without = Encode().eval()(x, padding).numpy()
        wb.serve(Encode(), "quick", example=(x, padding))
    given = {"x": x, "padding": padding}
    assert np.array_equal(wb.infer("slow", given), with_gradients)
    assert np.array_equal(wb.infer("quick", given), without)
    torch.set_default_dtype(torch.float64)
    try:
        wb.serve(Ones(), "ones", example=torch.ones(2, 2, dtype=torch.float64))
    finally:
        torch.set_default_dtype(torch.float32)
    assert wb.infer("ones", np.ones((3, 2))).dtype == np.float64
    assert torch.get_default_dtype() == torch.float32


class Ones(torch.nn.Module):
    """What it adds has the default datatype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(x.shape[0])


def test_the_state_of_a_recurrent_net(wb: Workbench) -> None:
    """Tensors within a tuple of the example are inputs, whose sizes the net itself checks."""
    lstm = torch.nn.LSTM(4, 8, batch_first=True)
    state = torch.zeros(1, 2, 8), torch.zeros(1, 2, 8)
    served = wb.serve(lstm, "lstm", example=(torch.randn(2, 5, 4), state))
    assert [spec.name for spec in served.inputs] == ["input", "hx_0", "hx_1"]
    x, h, c = torch.randn(3, 5, 4), torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    out, (hidden, cell) = lstm(x, (h, c))
    found = wb.infer("lstm", {"input": x, "hx_0": h, "hx_1": c})
    for name, right in zip(found, (out, hidden, cell), strict=True):
        assert np.array_equal(found[name], right.detach())


def test_several_inputs_and_outputs(wb: Workbench) -> None:
    """Inputs are called as the parameters of forward, outputs as the keys of what it returns."""
    for example in ((torch.zeros(2, 4), torch.zeros(2, 4)), {"a": [[0.0] * 4], "b": [[0.0] * 4]}):
        served = wb.serve(Two(), example=example)
        assert [spec.name for spec in (*served.inputs, *served.outputs)] == [
            "a", "b", "sum", "difference",
        ]  # fmt: skip
        three = np.ones((3, 4), np.float32)
        answer = wb.infer("two", {"a": three, "b": three})
        assert (answer["sum"].max(), answer["difference"].max()) == (2, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own: TorchScript is old
@pytest.mark.parametrize("how", ["script", "trace", "compile", "parallel"])
def test_compiled_modules(wb: Workbench, how: str) -> None:
    """Modules that TorchScript or the compiler made are served, too."""
    net, x = torch.nn.Linear(4, 2), torch.randn(3, 4)
    match how:  # by name, since the compiler puts a wrapper of its own in place of torch.jit.trace
        case "script":
            made = torch.jit.script(net)
        case "trace":
            made = torch.jit.trace(net, x)
        case "compile":
            made = torch.compile(net)
        case _:
            made = torch.nn.DataParallel(net)
    wb.serve(made, "made", example=x)
    assert np.array_equal(wb.infer("made", x), net(x).detach())


def test_the_module_of_a_program(wb: Workbench) -> None:
    """Its mode cannot be changed: one line says how the program is served."""
    program = torch.export.export(Net().eval(), (torch.randn(3, 4),))
    for thing in (program, program.module()):
        with pytest.raises(UsageError, match=r"^a program of torch.export is served as ONNX: "):
            wb.serve(thing, "net", example=torch.randn(3, 4))


def test_sizes_that_are_declared_free(wb: Workbench) -> None:
    """An LSTM answers sequences of any length, if its input is declared so, with all its states."""
    lstm = torch.nn.LSTM(4, 8, batch_first=True)
    example, inputs = torch.randn(1, 5, 4), {"input": (torch.float32, ["batch", "time", 4])}
    served = wb.serve(lstm, "lstm", example=example, inputs=inputs)
    assert [(spec.name, spec.shape[:-1]) for spec in served.outputs] == [
        ("output_0", (-1, -1)),
        ("output_1_0", (1, -1)),
        ("output_1_1", (1, -1)),
    ]
    for rows, time in ((1, 1), (3, 5), (2, 9)):
        x = torch.randn(rows, time, 4)
        with torch.inference_mode():
            out, (hidden, cell) = lstm(x)
        for found, right in zip(wb.infer("lstm", x).numpy(), (out, hidden, cell), strict=True):
            assert np.allclose(found, right, atol=1e-6)


def test_a_size_that_is_not_declared_free_is_the_example_s(wb: Workbench) -> None:
    """Only the rows are free by default, also where the module would take other sizes."""
    served = wb.serve(torch.nn.GRU(4, 8, batch_first=True), "gru", example=torch.randn(2, 5, 4))
    assert "input FP32 [-1, 5, 4] -> output_0 FP32 [-1, 5, 8], output_1 FP32 [1, -1, 8]" in str(
        served
    )
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 5, 4\], got \[2, 9, 4\]"):
        wb.infer("gru", torch.randn(2, 9, 4))


class Nested(torch.nn.Module):
    """It returns tensors in a tuple and a dict, and values that are no tensors."""

    def forward(self, x: torch.Tensor) -> Any:
        return x, {"twice": (x * 2, None), "count": 3}


def test_outputs_in_other_values(wb: Workbench) -> None:
    """Tensors are outputs wherever they are; what is no tensor is left out, and named."""
    served = wb.serve(Nested(), "nested", example=torch.ones(2, 3))
    assert "Nested (without output_1_count), by forward" in str(served)
    answer = wb.infer("nested", torch.ones(1, 3))
    assert {name: array.tolist() for name, array in answer.items()} == {
        "output_0": [[1, 1, 1]],
        "output_1_twice_0": [[2, 2, 2]],
    }


class Changing(torch.nn.Module):
    """It counts its calls, in a buffer and in a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.number = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.number += 1
        return x + self.calls + 10 * self.number


@pytest.mark.parametrize("copy", [None, False])
def test_the_example_changes_no_module(wb: Workbench, copy: bool | None) -> None:
    """The first request finds the module as it was when it was served."""
    wb.serve(Changing(), "changing", example=torch.zeros(1, 2), copy=copy)
    assert wb.infer("changing", torch.zeros(1, 2)).tolist() == [[11, 11]]


class Sum(torch.nn.Module):
    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        return sum(xs[1:], xs[0])


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return x


class Counts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> int:
        return len(x)


class Clashing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {"a": (x, x), "a_0": x}


def line() -> Any:
    return torch.nn.Linear(3, 2)


TWO, HALVES = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bfloat16)
THREE = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("make", "given", "told"),
    [
        (Net, {}, "Net does not say what it takes: pass example="),
        (torch.nn.Identity, {"example": HALVES},
         "'input' is torch.bfloat16: pass an example of torch.float32, and cast it in forward"),
        (ToBfloat16, {"example": TWO}, "'output' is torch.bfloat16: let the module cast it to"),
        (Counts, {"example": TWO}, "returns int, not tensors: serve a function around it"),
        (Sum, {"example": TWO}, "'xs', which have no names: serve a module around it"),
        (Named, {"example": (TWO, TWO)}, "example= has 2 values, and Named takes x"),
        (Clashing, {"example": TWO}, "two tensors would be called 'a_0'"),
        (Clashing, {"example": {"x": (TWO,), "x_0": TWO}}, "two tensors would be called 'x_0'"),
        (line, {"example": torch.ones(2, 5)},
         "Linear, called with the example, raised RuntimeError: mat1 and mat2"),
        (line, {"example": {"x": THREE}}, "raised TypeError: .* unexpected keyword argument 'x'"),
        (line, {"example": (THREE, THREE)}, "example= has 2 values, and Linear takes input"),
        (line, {"example": "text"}, "example= is a tensor, a tuple of them, or a dict of them"),
        (line, {"example": THREE[:0]}, r"the example of 'input' is empty: its shape is \[0, 3\]"),
        (line, {"example": THREE, "inputs": {"x": ("FP32", [-1, 3])}},
         "has no input 'x'; it has input"),
        (line, {"example": THREE, "inputs": {"input": ("FP32", [-1, 4])}},
         r"but its example is FP32 \[2, 3\]"),
        (line, {"example": THREE, "inputs": {"input": ("FP64", [-1, 3])}},
         r"declared as FP64 \[-1, 3\], but"),
        (line, {"example": THREE, "outputs": {"output": ("FP32", [-1, 2])}},
         "outputs= is not for a model of torch"),
    ],
)  # fmt: skip
def test_what_cannot_be_served(wb: Workbench, make: Any, given: dict[str, Any], told: str) -> None:
    """A module needs an example that it takes, and returns tensors alone, of numpy's datatypes.

    What is declared of its inputs agrees with the example; outputs are not declared.
    """
    with pytest.raises(UsageError, match=told) as caught:
        wb.serve(make(), "refused", **given)
    assert "\n" not in str(caught.value)


class Half(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).float()


def test_autocast_of_the_cell(wb: Workbench) -> None:
    """It holds where the module runs."""
    net, x = Half(), torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wb.serve(net, "cast", example=x)
        right = net(x).detach()
    assert np.array_equal(wb.infer("cast", x), right)


class Negative(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(x.reshape(-1, 1, 2)).conj().imag


def test_a_view_that_pytorch_negates_late(wb: Workbench) -> None:
    """Such an output is a tensor as others are."""
    wb.serve(Negative(), "negative", example=torch.ones(1, 2))
    assert wb.infer("negative", [[1.0, 2.0]]).tolist() == [[-2.0]]


class ByPlace(torch.nn.Module):
    """Its inputs may not be given by name, and one may be left out."""

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, /) -> torch.Tensor:
        return x if y is None else x - y


def test_inputs_without_names(wb: Workbench) -> None:
    """A module is called by the places of its inputs where it takes no names."""
    one, two = torch.ones(2, 3), torch.full((2, 3), 5.0)
    for example, right in ((one, 1), ((one, two), -4), ({"y": two, "x": one}, -4)):
        served = wb.serve(ByPlace(), "places", example=example)
        given = {"x": one, "y": two}
        answer = wb.infer("places", {spec.name: given[spec.name] for spec in served.inputs})
        assert answer.tolist() == [[right] * 3] * 2


def test_types_of_pytorch(wb: Workbench) -> None:
    """torch.float32 is a datatype, a function may return tensors, also those that need grad."""
    wb.register(
        lambda x: torch.from_numpy(np.array(x, np.float64)).requires_grad_() * 2,
        name="doubled",
        inputs={"x": (torch.float32, ["n"])},
        outputs={"y": (torch.float32, ["n"])},
    )
    assert wb.infer("doubled", [1.5]).tolist() == [3.0]


# ── transformers ────────────────────────────────────────────────────────────

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}


def classification(transformers: Any, tokenizer: Any, labels: int = 2, **options: Any) -> Any:
    """A pipeline that gives each text one of so many *labels*."""
    config = transformers.BertConfig(vocab_size=8, num_labels=labels, **SMALL)
    model = transformers.BertForSequenceClassification(config).eval()
    task = "text-classification"
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, **options)


def gpt(transformers: Any) -> Any:
    """A language model of eight words."""
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1, **ends)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def transformers() -> Any:
    reason = "transformers is not in this environment: make frameworks"
    found = pytest.importorskip("transformers", reason=reason)
    found.utils.logging.set_verbosity_error()
    return found


@pytest.fixture(scope="module")
def tokenizer(transformers: Any) -> Any:
    """One of eight words, made here: nothing is downloaded."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "[MASK]"]
    inner = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    names["mask_token"] = "[MASK]"
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def test_text_classification(wb: Workbench, transformers: Any, tokenizer: Any) -> None:
    """Texts go in, the best label of each and its score come out."""
    pipeline = classification(transformers, tokenizer)
    served = wb.serve(pipeline, "mood")
    assert re.sub(r"[\d.]+ KiB", "_", repr(served)) == (
        "mood: a copy of _ of TextClassificationPipeline, by the pipeline; "
        "text BYTES [-1] -> label BYTES [-1], score FP32 [-1]"
    )
    texts = ["good film", "bad film film"]
    answer = wb.infer("mood", texts)
    expected = pipeline(texts)
    assert answer["label"].tolist() == [each["label"] for each in expected]
    assert np.abs(answer["score"] - [each["score"] for each in expected]).max() < 1e-5


@pytest.mark.parametrize(("top_k", "shape"), [(None, [3]), (2, [2]), (1, [])])
def test_several_labels(
    wb: Workbench, transformers: Any, tokenizer: Any, top_k: int | None, shape: list[int]
) -> None:
    """As many labels and scores come out for each text as the pipeline's ``top_k`` says."""
    pipeline = classification(transformers, tokenizer, labels=3, top_k=top_k)
    wb.serve(pipeline, "moods")
    for texts in (["good film", "bad film film"], ["good"]):
        answer = wb.infer("moods", texts)
        expected = pipeline(texts)
        labels, scores = (
            np.reshape([[best[key] for best in each] for each in expected], (len(texts), *shape))
            for key in ("label", "score")
        )
        assert answer["label"].tolist() == labels.tolist()
        assert np.allclose(answer["score"], scores, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_one_json_for_each_text(
    wb: Workbench, transformers: Any, tokenizer: Any, count: int
) -> None:
    """Each text has one answer with all fillings of its mask, also where it is the only text."""
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=8, **SMALL)).eval()
    pipeline = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=2)
    wb.serve(pipeline, "fill")
    texts = ["good [MASK]", "bad [MASK] film"]
    answers = [json.loads(each) for each in wb.infer("fill", texts[:count])]
    assert len(answers) == count
    for answer, right in zip(answers, pipeline(texts), strict=False):
        assert [each["token"] for each in answer] == [each["token"] for each in right]


def test_other_pipelines(wb: Workbench, transformers: Any, tokenizer: Any) -> None:
    """Any other pipeline of texts answers JSON, one for each text; others are refused."""
    options = {"model": gpt(transformers), "tokenizer": tokenizer, "max_new_tokens": 2}
    pipeline = transformers.pipeline("text-generation", **options)
    wb.serve(pipeline, "write")
    for text, answer in zip(["good", "bad"], wb.infer("write", ["good", "bad"]), strict=True):
        assert json.loads(answer)[0]["generated_text"].startswith(text)
    with pytest.raises(UsageError, match="which takes texts: leave it out"):
        wb.serve(pipeline, "write", example=3)
    pipeline.task = "image-classification"
    with pytest.raises(UsageError, match="takes more than texts: write a function around it"):
        wb.serve(pipeline, "write")


def test_models_of_transformers(wb: Workbench, transformers: Any) -> None:
    """A language model gives its logits for texts of any length; its cache is left out."""
    model = gpt(transformers)
    example, inputs = {"input_ids": torch.ones(1, 4, dtype=torch.int64)}, ("INT64", [-1, -1])
    served = wb.serve(model, "gpt", example=example, inputs={"input_ids": inputs})
    assert "GPT2LMHeadModel (without past_key_values), by forward" in str(served)
    words = torch.tensor([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]])
    right = model(words).logits.detach()
    assert np.allclose(wb.infer("gpt", words), right, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_tensors_as_inputs(wb: Workbench, dtype: Any) -> None:
    """A tensor of any type is taken, in its graph too, and so is a bfloat16 for BF16."""
    numbers, bits = ("FP32", [-1]), ("BF16", [-1])
    wb.register(lambda x: x, name="same", inputs={"x": numbers}, outputs={"y": numbers})
    wb.register(lambda x: x, name="bits", inputs={"x": bits}, outputs={"y": bits})
    x = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=dtype.is_floating_point)
    assert wb.infer("same", x).tolist() == [1.0, 2.0]
    if dtype == torch.bfloat16:
        assert wb.infer("bits", x).tolist() == [0x3F80, 0x4000]


def test_a_function_of_tensors(wb: Workbench) -> None:
    """Where the example is a tensor, so is what a function is called with."""
    for example in (torch.ones(1, 3), {"x": torch.ones(1, 3)}):
        served = wb.serve(lambda x: x.clamp(min=0), "positive", example=example)
        assert repr(served).endswith("x FP32 [-1, 3] -> output FP32 [-1, 3]")
        assert wb.infer("positive", [[-1.0, 0.0, 2.0]]).tolist() == [[0.0, 0.0, 2.0]]
