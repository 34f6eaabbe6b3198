"""Ensembles over HTTP, as tritonclient sees them: one model, and its parts beside it."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

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
