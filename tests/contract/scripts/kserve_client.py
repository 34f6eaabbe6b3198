"""KServe's InferenceRESTClient at the end of a pipe. Runs in .venv-clients."""

from typing import Any

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import RequestedOutput
from kserve.utils.numpy_codec import to_np_dtype
from talk import talk

CLIENT = InferenceRESTClient(RESTConfig(protocol="v2"))


async def do(method: str, arguments: dict[str, Any]) -> Any:
    """The client's own *method*; an ``infer`` without ``data`` is given tensors to write itself."""
    if method != "infer" or "data" in arguments:
        answer = await getattr(CLIENT, method)(**arguments)
        return answer.to_dict() if method == "infer" else answer
    model, heads = arguments["model_name"], {}
    request = InferRequest(
        model,
        [_given(**given) for given in arguments["inputs"]],
        request_id=arguments.get("id"),
        parameters=arguments.get("parameters"),
        request_outputs=[RequestedOutput(**wanted) for wanted in arguments.get("outputs", [])],
    )
    answer = await CLIENT.infer(
        arguments["base_url"],
        request,
        model,
        headers=arguments.get("headers"),
        response_headers=heads,
    )
    outputs = {output.name: _told(output) for output in answer.outputs}
    return {"id": answer.id, "outputs": outputs, "content_type": heads["content-type"]}


def _given(name: str, datatype: str, shape: list[int], data: list[Any], binary: bool) -> InferInput:
    tensor = InferInput(name, shape, datatype)
    values = [each.encode("latin-1") for each in data] if datatype == "BYTES" else data
    tensor.set_data_from_numpy(np.array(values, to_np_dtype(datatype)).reshape(shape), binary)
    return tensor


def _told(output: Any) -> dict[str, Any]:
    array = output.as_numpy()
    return {"datatype": output.datatype, "shape": list(array.shape), "data": array.ravel().tolist()}


talk(do)
