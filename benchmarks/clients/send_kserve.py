"""What KServe's client sends: ``python send_kserve.py PORT MODEL ARRAYS``, see the other one.

JSON, as its documentation shows; each request has a new id.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig


async def main(port: str, model: str, path: str) -> None:
    """Send them all."""
    arrays = np.load(path)
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    for row in range(len(arrays[arrays.files[0]])):
        inputs = []
        for name in arrays.files:
            array = arrays[name][row]
            inputs.append(InferInput(name, list(array.shape), "FP32"))
            inputs[-1].set_data_from_numpy(array, binary_data=False)
        request = InferRequest(model_name=model, infer_inputs=inputs)
        await client.infer(f"http://127.0.0.1:{port}", request, model_name=model)


asyncio.run(main(*sys.argv[1:]))
