"""The attribute of a ``Workbench`` that SageMaker's annex brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.api.workbench import Workbench, serving_of
from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.contracts.sagemaker.endpoint.report import EndpointReport


def report_of(self: Workbench) -> EndpointReport:
    """What the multi-model endpoint did with each TargetModel. Raises ``UsageError``."""
    if self.settings["artifacts"] is None:
        raise UsageError("there is no multi-model endpoint: start the server with artifacts=FOLDER")
    report: EndpointReport = serving_of(self).core.parts["sagemaker"].endpoint.report
    return report


endpoint = property(report_of)
