"""What another budget, policy or device would do to recorded requests; no model is loaded or run.

``replay`` drives the server's own residency machine with a simulated clock, so that its decisions
are the server's. ``survey`` simulates many budgets in one pass, for requests one after another.
``Plan`` answers a user's questions from both.
"""

from workbench.planner.costs import ModelCost, measured
from workbench.planner.plan import Goal, Pinned, Plan
from workbench.planner.readers import read_csv, read_metrics, read_trace
from workbench.planner.replay import Outcome, replay
from workbench.planner.survey import Curve, survey
from workbench.planner.trace import Trace, TraceRequest

__all__ = [
    "Curve",
    "Goal",
    "ModelCost",
    "Outcome",
    "Pinned",
    "Plan",
    "Trace",
    "TraceRequest",
    "measured",
    "read_csv",
    "read_metrics",
    "read_trace",
    "replay",
    "survey",
]
