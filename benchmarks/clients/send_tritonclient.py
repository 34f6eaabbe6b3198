"""What tritonclient sends: ``python send_tritonclient.py PORT MODEL ARRAYS [OUTPUT ...]``.

ARRAYS is an .npz file of inputs by name, a request in each row. The client's defaults: binary
tensors both ways, no id.
"""

from __future__ import annotations

import sys

import numpy as np
import tritonclient.http as triton

port, model, path, *outputs = sys.argv[1:]
arrays = np.load(path)
with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
    for row in range(len(arrays[arrays.files[0]])):
        inputs = []
        for name in arrays.files:
            array = arrays[name][row]
            inputs.append(triton.InferInput(name, list(array.shape), "FP32"))
            inputs[-1].set_data_from_numpy(array)
        wanted = [triton.InferRequestedOutput(name) for name in outputs]
        client.infer(model, inputs, outputs=wanted or None)
