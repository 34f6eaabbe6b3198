"""The groups of routes that are served, in the order of the document's sections."""

from __future__ import annotations

from workbench.annex import annexes
from workbench.http.docs import documentation
from workbench.http.events import EVENTS
from workbench.http.inference import INFERENCE
from workbench.http.models import MODELS
from workbench.http.repository import REPOSITORY
from workbench.http.route import Group
from workbench.http.server import HEALTH
from workbench.http.statistics import STATISTICS
from workbench.http.status_page import STATUS_PAGE

_SERVED: tuple[Group, ...] = (
    HEALTH,
    MODELS,
    INFERENCE,
    STATISTICS,
    EVENTS,
    REPOSITORY,
    *(group for annex in annexes() for group in annex.routes()),
    STATUS_PAGE,
)
GROUPS = (*_SERVED, documentation(_SERVED))
