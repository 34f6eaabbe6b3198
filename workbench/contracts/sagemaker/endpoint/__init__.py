"""SageMaker's multi-model endpoint: the platform that loads, invokes and unloads a container."""

from workbench.contracts.sagemaker.endpoint.containers import ContainerReply, Invoke, ModelContainer
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint, ModelClaim, endpoint_of
from workbench.contracts.sagemaker.endpoint.refusals import EndpointRefusal, endpoint_refusal
from workbench.contracts.sagemaker.endpoint.report import EndpointReport

__all__ = [
    "ContainerReply",
    "Endpoint",
    "EndpointRefusal",
    "EndpointReport",
    "Invoke",
    "ModelClaim",
    "ModelContainer",
    "endpoint_of",
    "endpoint_refusal",
]
