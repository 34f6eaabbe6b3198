"""Ensembles over HTTP, as tritonclient sees them: one model, and its parts beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from workbench import Workbench

PARTS = ("digits_pixels", "digits_conv", "digits_label")


@pytest.fixture(scope="module")
def served(sample_models: Path) -> Iterator[Workbench]:
    with Workbench(sample_models, load="explicit", device="cpu") as workbench:
        yield workbench


@pytest.fixture
def triton(served: Workbench) -> Iterator[InferenceServerClient]:
    """A client of a server that has nothing loaded."""
    with InferenceServerClient(served.url.removeprefix("http://")) as client:
        for name in served.names:
            client.unload_model(name)
        yield client


def picture(row: np.ndarray) -> bytes:
    """A PNG of 32x32 pixels of a digit of the data set, dark on light."""
    grey = (255 - row.reshape(8, 8) * 255 / 16).round().astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.kron(grey, np.ones((4, 4), np.uint8))).save(file, "png")
    return file.getvalue()


def image_input(*files: bytes) -> InferInput:
    image = InferInput("image", [len(files)], "BYTES")
    image.set_data_from_numpy(np.array([*files, b""], object)[:-1])
    return image


def states(client: InferenceServerClient) -> dict[str, tuple[str, str]]:
    """State and reason of each model."""
    index = client.get_model_repository_index()
    return {row["name"]: (row["state"], row.get("reason", "")) for row in index}


def ready(client: InferenceServerClient) -> set[str]:
    return {name for name, (state, _) in states(client).items() if state == "READY"}


def test_a_picture_in_and_a_word_out(
    triton: InferenceServerClient, held_out: dict[str, Any]
) -> None:
    """PNG files of digits go in, preprocessing and the net run, and labels come out."""
    triton.load_model("digits_reader")
    rows = held_out["digits_x"][:50]
    image = image_input(*map(picture, rows))
    answer = triton.infer("digits_reader", [image], outputs=[InferRequestedOutput("label")])
    labels = [int(label) for label in answer.as_numpy("label")]
    assert np.mean(labels == held_out["digits_y"][:50]) > 0.95
    assert answer.get_response()["parameters"] == {
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
    }
    direct = InferInput("pixels", [50, 1, 8, 8], "FP32")
    direct.set_data_from_numpy(rows.reshape(-1, 1, 8, 8))
    probabilities = triton.infer("digits_conv", [direct]).as_numpy("probabilities")
    both = triton.infer("digits_reader", [image]).as_numpy("probabilities")
    assert np.allclose(both, probabilities, atol=0.02)


def test_it_is_one_model(triton: InferenceServerClient) -> None:
    """Metadata and configuration are its own; platform and steps are Triton's."""
    triton.load_model("digits_reader")
    metadata = triton.get_model_metadata("digits_reader")
    assert metadata == {
        "name": "digits_reader",
        "versions": ["1"],
        "platform": "ensemble",
        "inputs": [{"name": "image", "datatype": "UINT8", "shape": [-1, -1, -1, 1]}],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]},
        ],
    }
    config = triton.get_model_config("digits_reader")
    assert (config["platform"], config["backend"], config["instance_group"]) == ("ensemble", "", [])
    assert [step["model_name"] for step in config["ensemble_scheduling"]["step"]] == list(PARTS)
    assert config["ensemble_scheduling"]["step"][0] == {
        "model_name": "digits_pixels",
        "model_version": -1,
        "input_map": {"image": "image"},
        "output_map": {"pixels": "pixels"},
        "model_namespace": "",
    }


def test_its_configuration_can_be_loaded_again(triton: InferenceServerClient) -> None:
    """What GET config tells is a configuration that a load takes."""
    triton.load_model("digits_reader")
    config = triton.get_model_config("digits_reader")
    triton.load_model("digits_reader", config=json.dumps(config))
    assert triton.get_model_config("digits_reader") == config


def test_loading_and_unloading(triton: InferenceServerClient) -> None:
    """A load brings the parts; an unload leaves them; with its dependents, they go."""
    triton.load_model("digits_reader")
    assert ready(triton) == {"digits_reader", *PARTS}
    triton.unload_model("digits_reader")
    assert ready(triton) == set(PARTS)
    triton.load_model("digits_reader")
    triton.load_model("digits_conv")
    triton.unload_model("digits_reader", unload_dependents=True)
    assert ready(triton) == {"digits_conv"}
    assert states(triton)["digits_label"] == ("UNAVAILABLE", "unloaded")


def test_a_part_takes_it_down_and_brings_it_back(triton: InferenceServerClient) -> None:
    """As in Triton, which part is missing is told."""
    triton.load_model("digits_reader")
    triton.unload_model("digits_label")
    assert states(triton)["digits_reader"] == (
        "UNAVAILABLE",
        "its part digits_label:1 is not loaded (unloaded by hand)",
    )
    assert not triton.is_model_ready("digits_reader")
    with pytest.raises(InferenceServerException, match="needs its parts: digits_label:1 is not"):
        triton.infer("digits_reader", [image_input(picture(np.zeros(64)))])
    triton.load_model("digits_label")
    assert triton.is_model_ready("digits_reader")
    assert states(triton)["digits_reader"] == ("READY", "")


def test_mistakes_of_clients(triton: InferenceServerClient, served: Workbench) -> None:
    """What does not fit is a 400 that says where."""
    triton.load_model("digits_reader")
    with pytest.raises(InferenceServerException, match=r"^\[400\] .*image 0 cannot be decoded"):
        triton.infer("digits_reader", [image_input(b"no picture")])
    with pytest.raises(InferenceServerException, match=r"^\[400\] digits_reader:1 has no output"):
        triton.infer(
            "digits_reader",
            [image_input(picture(np.zeros(64)))],
            outputs=[InferRequestedOutput("pixels")],
        )
    url = f"{served.url}/v2/repository/models/digits_reader/unload"
    answer = httpx.post(url, json={"parameters": {"unload_dependents": "yes"}})
    assert answer.status_code == 400
    assert answer.json() == {"error": "'unload_dependents' must be true or false, not \"yes\""}


def test_a_broken_ensemble_says_why(triton: InferenceServerClient) -> None:
    """A load that cannot be is a 400 with the tensor or the part, and changes nothing."""
    triton.load_model("digits_reader")
    config = triton.get_model_config("digits_reader")
    steps = config["ensemble_scheduling"]["step"]
    steps[1]["model_name"] = "digits_gone"
    with pytest.raises(InferenceServerException, match=r"^\[400\] .*'digits_gone'"):
        triton.load_model("digits_reader", config=json.dumps(config))
    steps[1]["model_name"] = "wine"
    with pytest.raises(InferenceServerException, match=r"step 2 \(wine\) has no input 'pixels'"):
        triton.load_model("digits_reader", config=json.dumps(config))
    steps[1]["model_name"] = "digits_reader"
    told = r"digits_reader:1 is a part of itself: digits_reader -> digits_reader"
    with pytest.raises(InferenceServerException, match=told):
        triton.load_model("digits_reader", config=json.dumps(config))
    assert triton.is_model_ready("digits_reader")


def test_statistics(triton: InferenceServerClient) -> None:
    """A request counts once of it, and once of each part, whose time is a part of its own."""

    def counted() -> dict[str, tuple[int, int]]:
        rows = triton.get_inference_statistics()["model_stats"]
        return {
            row["name"]: (
                row["inference_stats"]["success"]["count"],
                row["inference_stats"]["compute_infer"]["ns"],
            )
            for row in rows
        }

    triton.load_model("digits_reader")
    before = counted()
    triton.infer("digits_reader", [image_input(picture(np.zeros(64)))])
    after = counted()
    new = {name: after[name][0] - before[name][0] for name in after}
    assert new == dict.fromkeys(("digits_reader", *PARTS), 1)
    spent = {name: after[name][1] - before[name][1] for name in after}
    assert spent["digits_reader"] >= sum(spent[name] for name in PARTS)


def test_generate(served: Workbench, triton: InferenceServerClient) -> None:
    """The generate extension answers with what Triton adds for ensembles."""
    triton.load_model("digits_reader")
    url = f"{served.url}/v2/models/digits_label/generate"
    assert httpx.post(url, json={}).status_code == 400
    answer = httpx.post(
        f"{served.url}/v2/models/digits_reader/generate", json={"image": [[[[255]] * 32] * 32]}
    )
    assert answer.status_code == 200
    assert (answer.json()["model_name"], answer.json()["sequence_end"]) == ("digits_reader", False)
