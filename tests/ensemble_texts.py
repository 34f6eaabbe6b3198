"""Configurations of ensembles, from steps such as ``"a x=in y=t"``."""

from typing import Any


def ensemble_text(*steps: str, ports: str = "", batch: int = 0) -> str:
    """The configuration of *steps*, from *in* to *out* unless *ports* says otherwise."""
    told = "".join(map(_step, steps))
    return f"max_batch_size: {batch} {ports or declared('out')} ensemble_scheduling {{ {told} }}"


def declared(*outputs: str, size: int = -1) -> str:
    """The input *in*, and *outputs*, of one dimension of that *size*."""
    tensor = f"data_type: TYPE_FP32 dims: [{size}]"
    given = "".join(f'output {{ name: "{name}" {tensor} }} ' for name in outputs)
    return f'input {{ name: "in" {tensor} }} {given}'


def ensemble_of(part: str) -> dict[str, Any]:
    """What ``load`` takes for an ensemble whose only step is *part*, from *x* to *y*."""
    step = {"model_name": part, "model_version": -1}
    step |= {"input_map": {"x": "x"}, "output_map": {"y": "y"}}
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    return {
        "platform": "ensemble",
        "input": [tensor | {"name": "x"}],
        "output": [tensor | {"name": "y"}],
        "ensemble_scheduling": {"step": [step]},
    }


def _step(text: str) -> str:
    model, *maps = text.split()
    told = ""
    for each in maps:
        key, value = each.split("=")
        field = "output_map" if key in ("y", "out", "probabilities") else "input_map"
        told += f'{field} {{ key: "{key}" value: "{value}" }} '
    return f'step {{ model_name: "{model}" model_version: -1 {told} }}'
