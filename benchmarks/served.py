"""The things that ``benchmarks/serve.py`` serves, how each is loaded, and how long it takes alone.

python served.py fit FOLDER              fits them, and writes them with the rows that are asked for
python served.py plain FOLDER THING N    seconds of the processor a call on N rows, in a plain loop

Peers import it too: it needs nothing but joblib, numpy, and the library of the thing that is asked.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = {"pipeline": "sklearn", "forest": "sklearn", "boosted": "xgboost", "module": "torch"}
ROWS = 64
PLAIN_S = 1.0


def fit(folder: Path) -> list[str]:
    """Write what the installed libraries can fit, and rows of which none is as another."""
    import joblib
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_digits(return_X_y=True)
    np.save(folder / "rows.npy", x[:ROWS])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    joblib.dump(pipeline.fit(x, y), folder / "pipeline.joblib")
    joblib.dump(RandomForestClassifier(50, random_state=0).fit(x, y), folder / "forest.joblib")
    if importlib.util.find_spec("xgboost"):
        import xgboost

        boosted = xgboost.XGBClassifier(n_estimators=50, n_jobs=1)
        boosted.fit(x, y).save_model(folder / "boosted.json")
    return [name for name, library in LIBRARIES.items() if importlib.util.find_spec(library)]


def load(folder: Path, thing: str) -> Any:
    """The *thing*, as its library has it."""
    if thing == "boosted":
        import xgboost

        boosted = xgboost.XGBClassifier(n_jobs=1)
        boosted.load_model(folder / "boosted.json")
        return boosted
    if thing == "module":
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(1)
        inner = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU())
        return torch.nn.Sequential(inner, torch.nn.Linear(256, 10), torch.nn.Softmax(-1)).double()
    import joblib

    return joblib.load(folder / f"{thing}.joblib")


def answers(folder: Path, thing: str) -> Callable[[Any], Any]:
    """The probabilities by the *thing* itself, of a matrix of rows."""
    loaded = load(folder, thing)
    if thing != "module":
        probabilities: Callable[[Any], Any] = loaded.predict_proba
        return probabilities
    import torch

    def run(rows: Any) -> Any:
        with torch.no_grad():
            return loaded.eval()(torch.from_numpy(rows)).numpy()

    return run


def plain_s(folder: Path, thing: str, count: int) -> float:
    """Seconds of the processor a call on so many rows."""
    call, rows = answers(folder, thing), np.load(folder / "rows.npy")[:count]
    for _ in range(10):
        call(rows)
    calls, begun_s = 0, time.process_time()
    while time.process_time() - begun_s < PLAIN_S:
        call(rows)
        calls += 1
    return (time.process_time() - begun_s) / calls


def main() -> None:
    """As above."""
    what, folder, *more = sys.argv[1:]
    if what == "fit":
        told: Any = fit(Path(folder))
    else:
        told = plain_s(Path(folder), more[0], int(more[1]))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
