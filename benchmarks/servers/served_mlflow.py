"""mlflow's server: ``python served_mlflow.py FOLDER PORT THING``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mlflow.pyfunc

sys.path.insert(0, str(Path(__file__).parents[1]))
from served import answers


class Probabilities(mlflow.pyfunc.PythonModel):
    """The probabilities, which mlflow's own flavours do not give."""

    def load_context(self, context: object) -> None:  # noqa: ARG002
        """Load the thing."""
        self.call = answers(
            Path(os.environ["WORKBENCH_BENCH_FOLDER"]), os.environ["WORKBENCH_BENCH_THING"]
        )

    def predict(self, _: object, model_input: object) -> object:
        """The probabilities of some rows."""
        return self.call(model_input)


if __name__ == "__main__":
    folder, port, thing = sys.argv[1:]
    os.environ |= {"WORKBENCH_BENCH_FOLDER": folder, "WORKBENCH_BENCH_THING": thing}
    path = Path(os.environ["TMPDIR"], f"mlflow-{port}")
    here = str(Path(__file__))
    mlflow.pyfunc.save_model(
        path,
        python_model=Probabilities(),
        code_paths=[here, str(Path(here).parents[1] / "served.py")],
    )
    command = ["models", "serve", "-m", str(path), "--env-manager", "local", "-h", "127.0.0.1"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # for uvicorn
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *command, "-p", port])
