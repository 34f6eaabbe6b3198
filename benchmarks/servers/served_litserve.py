"""LitServe in batches of up to 32: ``python served_litserve.py FOLDER PORT THING``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import litserve
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from served import answers

folder, port, thing = sys.argv[1:]


class Api(litserve.LitAPI):
    """One row a request."""

    def setup(self, device: str) -> None:  # noqa: ARG002
        """Load the thing, in the process that runs it."""
        self.call = answers(Path(folder), thing)

    def decode_request(self, request):  # noqa: ANN001, ANN201  # types would be its schema
        """Its row."""
        return request["x"][0]

    def batch(self, inputs: Any) -> Any:
        """A matrix of their rows."""
        return np.asarray(inputs)

    def predict(self, x: Any) -> Any:
        """Of one row, or of several."""
        return self.call(np.atleast_2d(x))

    def unbatch(self, output: Any) -> Any:
        """The rows of the answer."""
        return list(output)

    def encode_response(self, output: Any) -> Any:
        """As JSON."""
        return {"y": np.asarray(output).reshape(1, -1).tolist()}


if __name__ == "__main__":
    api = Api(max_batch_size=32, batch_timeout=0.002)
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False)
