"""What the annex keeps for a server: the container, and the endpoint before it."""

from __future__ import annotations

from workbench.contracts.sagemaker.container import Container
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint
from workbench.core import ServerCore
from workbench.settings import Settings


class Platform:
    """SageMaker's container over *core*, and the platform's half, which loads its models."""

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self.container = Container(core)
        self.endpoint = Endpoint(self.container)

    def close(self) -> None:
        self.endpoint.close()

    def hand_over(self, _: Settings) -> bool:
        self.endpoint.empty()  # the copies of its models go with it
        return False
