"""How fast a model is: throughput and latency under load, and the configuration that serves most.

``bench`` measures a model at any V2 server; ``tune`` finds a configuration and writes it.
"""

from workbench.bench.benchmark import bench
from workbench.bench.client import Load
from workbench.bench.notebook import bench_shown, tune_shown
from workbench.bench.options import Several, sweep_of
from workbench.bench.process import Pace
from workbench.bench.report import Bench, row
from workbench.bench.sweep import Point, Sweep
from workbench.bench.tuning import Tuning, tune
from workbench.bench.variant import Variant

__all__ = [
    "Bench",
    "Load",
    "Pace",
    "Point",
    "Several",
    "Sweep",
    "Tuning",
    "Variant",
    "bench",
    "bench_shown",
    "row",
    "sweep_of",
    "tune",
    "tune_shown",
]
