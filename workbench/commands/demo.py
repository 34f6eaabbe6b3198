"""The demo: real data to real models over HTTP, under a budget that does not hold them all."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from pathlib import Path
from textwrap import indent
from typing import Any
from urllib.parse import urlsplit

import click
import numpy as np

from workbench.api.workbench import Workbench
from workbench.errors import RepositoryError
from workbench.samples import write_models
from workbench.tensor import Array
from workbench.views.text import event_row, models_text
from workbench.views.times import show_seconds

_BUDGET = "64MiB"
_MARK = ".workbench-demo"  # in the folder that the next demo may delete
_HEAVY_COUNT = 5
_HEAVY_NBYTES = 18 * 2**20
_TOO_LARGE_NBYTES = 80 * 2**20
# The head line says the first two; of the others, the next event of the same model says it all.
_HIDDEN_EVENTS = ("device", "start", "loading", "unloading")
_COLOURS = {"load": "green", "evict": "red", "refused": "red", "failed": "red"}  # of events


class Client:
    """An ordinary client of the V2 protocol: the standard library's, one connection, JSON."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def infer(self, model: str, name: str, array: Array) -> tuple[int, Any]:
        """Status and JSON of one request with one FP32 input."""
        body = {
            "inputs": [
                {
                    "name": name,
                    "shape": list(array.shape),
                    "datatype": "FP32",
                    "data": array.ravel().tolist(),
                }
            ]
        }
        self._connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> None:
        self._connection.close()


class Demo:
    """The objects that the steps share: the server, a client, and how far the events were told."""

    def __init__(self, workbench: Workbench, held_out: dict[str, Array]) -> None:
        self.workbench = workbench
        self.held_out = held_out
        self.client = Client(workbench.url)
        self._told = 0

    def ask(self, model: str, name: str, array: Array) -> Array:
        """The model's first output; its events are told."""
        status, answer = self.client.infer(model, name, array)
        self.tell_events()
        if status != 200:
            raise RuntimeError(f"{model} answered {status}: {answer}")
        output = answer["outputs"][0]
        values = np.array(output["data"], np.float32)
        return values.reshape(output["shape"])

    def row_of(self, model: str) -> Array:
        """A row of ones for the input ``x`` of *model*."""
        return np.ones((1, self.workbench.models[model].inputs["x"].shape[1]), np.float32)

    def tell_events(self) -> None:
        """Print what happened since the last time."""
        for entry in self.workbench.wait_for_events(self._told, 0.0):
            self._told = entry.number
            at, kind, text = event_row(entry)
            if kind not in _HIDDEN_EVENTS:
                shown = click.style(kind.ljust(8), fg=_COLOURS.get(kind, "cyan"))
                click.echo(f"    {at}  {shown} {text}")

    def tell_memory(self) -> None:
        """Print who is in memory, as a bar of the budget."""
        snapshot = self.workbench.snapshot()
        filled = round(40 * snapshot.held_nbytes / snapshot.budget_nbytes)
        bar = "#" * filled + "." * (40 - filled)
        names = ", ".join(model.id.name for model in snapshot.models)
        click.echo(
            f"    [{bar}] {snapshot.held_nbytes / 2**20:.1f} of "
            f"{snapshot.budget_nbytes / 2**20:.0f} MiB: {names}"
        )


def run(samples: Path, out: Path) -> None:
    """Run the demo with the models of *samples*, and leave a picture in *out*.

    Raises ``RepositoryError`` where *samples* has no held-out data.
    """
    held_out = _held_out(samples)
    _title(f"Preparing a repository in {out}: the sample models and {_HEAVY_COUNT + 1} heavy ones")
    repository = _prepare(samples, out / "demo_models")
    with Workbench(repository, budget=_BUDGET) as workbench:
        demo = Demo(workbench, held_out)
        _title(f"A server runs in this process, with room for {_BUDGET} of models")
        click.echo(f"    {workbench!r}".replace("\n", "\n    "))
        demo.tell_events()
        for step in (_digits, _others, _heavy, _too_large):
            step(demo)
        demo.client.close()
        _title("Every model, and what it was asked")
        click.echo(indent(models_text(workbench.models), "    "))
        picture = out / "memory.png"
        workbench.plot_memory().savefig(picture, dpi=110)
    click.echo()
    click.echo(f"The memory over time is drawn in {picture}; next: make lab, or workbench lab")


def _digits(demo: Demo) -> None:
    _title("450 handwritten digits that no model has seen, one by one, over HTTP")
    images, answers = demo.held_out["digits_x"], demo.held_out["digits_y"]
    latencies_s, guesses = [], []
    for image in images:
        started_s = time.perf_counter()
        probabilities = demo.ask("digits", "pixels", image[None])
        latencies_s.append(time.perf_counter() - started_s)
        guesses.append(probabilities.argmax())
    p50_s, p99_s = np.quantile(latencies_s, (0.5, 0.99))
    _accuracy("digits", np.array(guesses), answers)
    click.echo(
        f"    latency: p50 {show_seconds(p50_s)}, p99 {show_seconds(p99_s)}, client included"
    )
    demo.tell_memory()


def _others(demo: Demo) -> None:
    _title("The same digits to a convolutional net, wines to a classifier, patients to a regressor")
    data = demo.held_out
    batches = data["digits_x"].reshape(-1, 50, 1, 8, 8)
    guesses = [demo.ask("digits_conv", "pixels", batch).argmax(axis=1) for batch in batches]
    _accuracy("digits_conv", np.concatenate(guesses), data["digits_y"])
    _accuracy("wine", demo.ask("wine", "features", data["wine_x"]).argmax(axis=1), data["wine_y"])
    predicted = demo.ask("diabetes", "features", data["diabetes_x"])[:, 0]
    truth = data["diabetes_y"]
    unexplained = ((truth - predicted) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    _result("diabetes", f"R² {1 - unexplained:.2f} on {len(truth)} held-out patients")
    demo.tell_memory()


def _heavy(demo: Demo) -> None:
    _title(f"{_HEAVY_COUNT} models of 18 MiB in turn: there is room for three, so some are evicted")
    image = demo.held_out["digits_x"][:1]
    for round_number in range(2):
        for index in range(_HEAVY_COUNT):
            name = f"heavy_{index}"
            demo.ask(name, "x", demo.row_of(name))
            demo.ask("digits", "pixels", image)  # used all the time, so it stays
            demo.tell_memory()
        if not round_number:
            demo.workbench.pin("heavy_4")
            click.echo("    heavy_4 is pinned: in the second round it stays")


def _too_large(demo: Demo) -> None:
    _title("A model that can never fit is refused at once, with numbers")
    status, answer = demo.client.infer("too_large", "x", demo.row_of("too_large"))
    demo.tell_events()
    click.echo(f"    HTTP {status}: {answer['error']}")


def _held_out(samples: Path) -> dict[str, Array]:
    path = samples / "held_out.npz"
    if not path.is_file():
        raise RepositoryError(
            f"{samples} holds no sample models: without a folder the demo uses those that "
            "come with the workbench"
        )
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _prepare(samples: Path, repository: Path) -> Path:
    ours = repository / _MARK
    if repository.exists() and not ours.exists():
        raise RepositoryError(f"{repository} is there and not the demo's: choose another --out")
    if repository.exists():
        shutil.rmtree(repository)
    shutil.copytree(samples, repository, ignore=shutil.ignore_patterns("*.py", "*.md", "*.npz"))
    ours.touch()
    write_models(repository, _HEAVY_COUNT, _HEAVY_NBYTES)
    alone = repository.parent / "too_large"
    (large,) = write_models(alone, 1, _TOO_LARGE_NBYTES)
    large.rename(repository / "too_large")
    alone.rmdir()
    config = repository / "too_large" / "config.pbtxt"
    config.write_text(config.read_text("utf-8").replace("heavy_0", "too_large"), "utf-8")
    return repository


def _accuracy(model: str, guesses: Array, answers: Array) -> None:
    right = int((guesses == answers).sum())
    _result(model, f"{right} of {len(answers)} right ({right / len(answers):.1%})")


def _title(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)


def _result(model: str, text: str) -> None:
    click.echo(f"    {model}: {click.style(text, bold=True)}")
