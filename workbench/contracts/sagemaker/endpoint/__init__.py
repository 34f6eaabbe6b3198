"""SageMaker's multi-model endpoint: the platform that loads, invokes and unloads a container."""

from workbench.contracts.sagemaker.endpoint.containers import ContainerReply, Invoke
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint, ModelClaim
from workbench.contracts.sagemaker.endpoint.refusals import EndpointRefusal, endpoint_refusal
from workbench.contracts.sagemaker.endpoint.report import EndpointReport
from workbench.contracts.sagemaker.endpoint.setup import endpoint_of

__all__ = [
    "ContainerReply",
    "Endpoint",
    "EndpointRefusal",
    "EndpointReport",
    "Invoke",
    "ModelClaim",
    "endpoint_of",
    "endpoint_refusal",
]
