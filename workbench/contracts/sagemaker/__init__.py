"""SageMaker's contract for the containers of multi-model endpoints."""

from workbench.contracts.sagemaker.container import Asked, Container, Invocation
from workbench.contracts.sagemaker.names import core_name
from workbench.contracts.sagemaker.paging import PAGE, page_of
from workbench.contracts.sagemaker.refusals import Refusal, refusal_of

__all__ = [
    "PAGE",
    "Asked",
    "Container",
    "Invocation",
    "Refusal",
    "core_name",
    "page_of",
    "refusal_of",
]
