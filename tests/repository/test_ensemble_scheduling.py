"""``ensemble_scheduling``: what is read, and what is refused by its step and its tensor."""

from pathlib import Path

import pytest
from configs import read, refusal

from workbench.errors import InvalidRequest
from workbench.model import Ensemble, ModelId, Step
from workbench.repository import ModelRepository

PORTS = """
input { name: "in" data_type: TYPE_FP32 dims: [-1] }
output { name: "out" data_type: TYPE_FP32 dims: [-1] }
"""


def step(model: str, taken: str, given: str, more: str = "model_version: -1") -> str:
    """A step of *model* that takes tensors into x, x2 and on, and gives them from y, y2 and on."""
    maps = "".join(
        f'{field} {{ key: "{port}{number or ""}" value: "{tensor}" }} '
        for field, port, tensors in (("input_map", "x", taken), ("output_map", "y", given))
        for number, tensor in enumerate(tensors.split())
    )
    return f'step {{ model_name: "{model}" {maps} {more} }}'


def ensemble(*steps: str, ports: str = PORTS) -> str:
    return f'platform: "ensemble" {ports} ensemble_scheduling {{ {" ".join(steps)} }}'


def test_steps_are_read(folder: Path) -> None:
    """Steps keep their order, their models and their maps; version -1 is the latest."""
    text = ensemble(step("a", "in", "t u"), step("b", "t u", "out", "model_version: 3"))
    assert read(folder, text).ensemble == Ensemble(
        (
            Step(1, "a", None, {"x": "in"}, {"y": "t", "y1": "u"}),
            Step(2, "b", 3, {"x": "t", "x1": "u"}, {"y": "out"}),
        )
    )


def test_steps_are_in_the_order_of_their_runs(folder: Path) -> None:
    """Each comes after those whose tensors it takes; those that are ready, in their own order."""
    listed = (
        step("d", "v w", "out"),
        step("c", "u", "w"),
        step("b", "t", "v"),
        step("a", "in", "t u"),
    )
    found = read(folder, ensemble(*listed)).ensemble
    assert found is not None
    assert [each.model for each in found.steps] == ["a", "c", "b", "d"]
    assert [each.number for each in found.steps] == [4, 2, 3, 1]


def test_the_platform_may_be_left_out(folder: Path) -> None:
    """ensemble_scheduling alone makes an ensemble."""
    text = ensemble(step("a", "in", "out")).removeprefix('platform: "ensemble"')
    assert read(folder, text).ensemble is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ensemble(), "ensemble_scheduling has no steps"),
        ('platform: "ensemble"', "ensemble_scheduling has no steps"),
        (ensemble(step("a", "in", "out"), ports=""),
         "an ensemble must say its input and its output: its steps do not"),
        (ensemble(step("", "in", "out")), "step 1 of ensemble_scheduling has no model_name"),
        (ensemble(step("../a", "in", "out")),
         "step 1 of ensemble_scheduling: '../a' cannot be the name of a model"),
        (ensemble(step("a", "in", "out", "")),
         "step 1 (a) has model_version 0: say -1 for the latest"),
        (ensemble(step("a", "in", "out", "model_version: -2")),
         "step 1 (a) has model_version -2: say -1 for the latest"),
        (ensemble(step("a", "", "out")), "step 1 (a) has no input_map"),
        (ensemble(step("a", "in", "")), "step 1 (a) has no output_map"),
        (ensemble(step("a", "in", "out", 'model_version: -1 input_map { key: "z" }')),
         "the input_map of step 1 (a) has a tensor without a name"),
        (ensemble(step("a", "in gone", "out")),
         "step 1 (a) takes tensor 'gone', which no step gives, and which is no input"),
        (ensemble(step("a", "in", "t"), step("b", "t", "u")),
         "no step gives the output 'out'"),
        (ensemble(step("a", "in", "out"), step("b", "in", "out")),
         "tensor 'out' comes from step 1 (a) and step 2 (b)"),
        (ensemble(step("a", "in", "out out")),
         "tensor 'out' comes from step 1 (a) and step 1 (a)"),
        (ensemble(step("a", "in", "out in")),
         "tensor 'in' comes from the input and step 1 (a)"),
        (ensemble(step("a", "in", "out t")),
         "step 1 (a) gives tensor 't', which no step takes: leave it out"),
        (
            ensemble(
                step("a", "in", "out"),
                ports=PORTS + 'input { name: "other" data_type: TYPE_FP32 dims: [1] }',
            ),
            "no step takes the input 'other'",
        ),
        (ensemble(step("a", "in out", "out")),
         "steps wait for each other: step 1 (a)"),
        (ensemble(step("z", "in", "v"), step("a", "u v", "t"), step("b", "t", "u out")),
         "steps wait for each other: step 2 (a), step 3 (b)"),
        (
            'platform: "onnxruntime_onnx" '
            + ensemble(step("a", "in", "out")).partition('"e')[2][9:],
            "ensemble_scheduling is of platform ensemble, not 'onnxruntime_onnx'",
        ),
        (ensemble(*[step("a", "in", "out")] * 1000),
         "tensor 'out' comes from step 1 (a) and step 2 (a)"),
        (ensemble(*[step("a", "in", "out")] * 1001),
         "ensemble_scheduling has more than 1000 steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(folder: Path, text: str, told: str) -> None:
    """A step or a tensor that makes no sense is refused by its name."""
    assert refusal(folder, text) == told


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("instance_group { count: 2 }", "instance_group"),
        ("model_warmup { }", "model_warmup"),
        ('default_model_filename: "x"', "default_model_filename"),
        ('backend: "onnxruntime"', "backend"),
        ("optimization { cuda { graphs: true } }", "optimization"),
    ],
)
def test_what_is_its_parts_is_refused(folder: Path, field: str, name: str) -> None:
    """What is not honoured in an ensemble, which has no session of its own, is named."""
    text = ensemble(step("a", "in", "out")) + field
    assert refusal(folder, text) == f"field {name!r} is not honoured in an ensemble: leave it out"


@pytest.mark.parametrize(
    ("step_or_field", "name"),
    [
        ("max_inflight_requests: 2", "ensemble_scheduling.max_inflight_requests"),
        ('step { model_namespace: "n" }', "ensemble_scheduling.step.model_namespace"),
    ],
)
def test_what_is_not_honoured_of_steps_is_named(
    folder: Path, step_or_field: str, name: str
) -> None:
    """As of any configuration, a field that is not honoured is refused by its name."""
    told = f"field {name!r} is not honoured in an ensemble: leave it out"
    assert refusal(folder, ensemble(step("a", "in", "out"), step_or_field)) == told


def test_an_ensemble_has_no_batching_of_its_own(folder: Path) -> None:
    """Of Triton's schedules a model has one."""
    told = refusal(folder, ensemble(step("a", "in", "out")) + "dynamic_batching { }")
    assert '"dynamic_batching" is specified along with field "ensemble_scheduling"' in told


def test_parameters_of_an_engine_are_ignored(folder: Path) -> None:
    """Only the parameters of images mean something to an ensemble; others are kept."""
    text = ensemble(step("a", "in", "out"))
    scale = 'parameters { key: "image_scale" value { string_value: "0.5" } }'
    assert read(folder, text + scale).parameters == {"image_scale": "0.5"}
    tier = 'parameters { key: "tier" value { string_value: "plain" } }'
    assert read(folder, text + tier).ignored == ("parameter 'tier'",)


@pytest.mark.parametrize("versions", [(), (1,), (2, 7)])
def test_versions(folder: Path, versions: tuple[int, ...]) -> None:
    """An ensemble has no file; its versions are folders, or it is version 1."""
    read(folder, ensemble(step("a", "in", "out")))
    for version in versions:
        (folder / str(version)).mkdir()
    found = ModelRepository(folder.parent).find("m")
    assert found.versions == (versions[-1:] or (1,))
    source = found.source()
    assert source.id == ModelId("m", found.versions[0])
    assert source.origin is source.config.ensemble is not None


def test_a_load_brings_an_ensemble(folder: Path) -> None:
    """The configuration of a load may make an ensemble of a model; it has no files then."""
    (folder / "model.onnx").write_bytes(b"")
    repository = ModelRepository(folder.parent)
    config = """{"platform": "ensemble",
        "input": [{"name": "in", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "out", "data_type": "TYPE_FP32", "dims": [1]}],
        "ensemble_scheduling": {"step": [{"model_name": "a", "model_version": -1,
            "input_map": {"x": "in"}, "output_map": {"y": "out"}}]}}"""
    repository.set_override("m", repository.read_override("m", config, {}))
    assert isinstance(repository.find("m").source().origin, Ensemble)
    with pytest.raises(InvalidRequest, match="an ensemble has no files: leave them out"):
        repository.read_override("m", config, {"1/model.onnx": b""})
    repository.close()
