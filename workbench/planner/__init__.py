"""What another budget or policy would do to recorded requests; no model is loaded or run.

``replay`` drives the server's own residency machine with a simulated clock, so that its decisions
are the server's. ``Plan`` answers a user's questions by such replays.
"""

from workbench.planner.costs import ModelCost, measured
from workbench.planner.plan import Plan
from workbench.planner.readers import read_csv
from workbench.planner.replay import Outcome, replay
from workbench.planner.trace import Trace, TraceRequest

__all__ = [
    "ModelCost",
    "Outcome",
    "Plan",
    "Trace",
    "TraceRequest",
    "measured",
    "read_csv",
    "replay",
]
