"""A plan for a running server, as a notebook shows it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench import Workbench
from workbench.annexes.planner.costs import ModelCost
from workbench.annexes.planner.plan import Plan
from workbench.annexes.planner.trace import Trace, TraceRequest
from workbench.commands.cli import main
from workbench.errors import UsageError
from workbench.model import ModelId

PORTS = {"x": ("FP32", [1])}


@pytest.fixture(scope="module")
def served() -> Workbench:
    """A server whose functions a and b took turns in memory that holds one of them."""
    with Workbench(budget="15MiB") as wb:
        for name in "ab":
            wb.register(lambda x: x, inputs=PORTS, outputs=PORTS, name=name, memory="10MiB")
        for _ in range(4):
            for name in "ab":
                wb.infer(name, [1.0])
        yield wb


def test_the_last_requests(served: Workbench, tmp_path: Path) -> None:
    """The trace has the requests in order; from a file it makes the same plan."""
    trace = served.trace
    assert [request.model.name for request in trace] == ["a", "b"] * 4
    trace.save(tmp_path / "trace.csv")
    again = served.plan(tmp_path / "trace.csv")
    assert str(again) == str(served.plan())
    assert str(again).startswith("20.0 MiB would make 99 % of these requests warm; at 15.0 MiB")


def test_a_run_takes_what_the_server_measured(served: Workbench) -> None:
    """Where each request waited for a load, its own seconds do not say how long the run took."""
    waited = Trace.of(each._replace(seconds=100.0) for each in served.trace)
    costs = served.plan(waited).costs
    for model in served.snapshot().models:
        assert model.requests.executions == 4
        assert costs[model.id].run_s == model.requests.run_s


def test_a_run_takes_the_lower_quartile(served: Workbench) -> None:
    """Of the seconds of requests the lower quartile counts, if the server measured more."""
    took_s = iter([1e-9, 0.0, 2e-9, 0.0, 1.0, 0.0, 1.0, 0.0])
    asked = Trace(each._replace(seconds=next(took_s)) for each in served.trace)
    assert served.plan(asked).costs[ModelId("a", 1)].run_s == pytest.approx(1.75e-9)


def test_shown(served: Workbench) -> None:
    """A plan is text, and HTML with a picture; neither needs a front end with widgets."""
    plan = served.plan(evict=["cost", "lfu"])
    bundle = plan._repr_mimebundle_()
    assert bundle["text/plain"] == repr(plan)
    assert "all at once" in repr(plan)
    assert "data:image/png;base64," in bundle["text/html"]
    assert set(bundle) == {"text/plain", "text/html"}
    assert plan.figure()._repr_png_().startswith(b"\x89PNG")


def test_ways_to_ask(served: Workbench, tmp_path: Path) -> None:
    """Shares and policies may be texts, and requests a file, as on the command line."""
    served.trace.save(tmp_path / "trace.csv")
    plan = served.plan(tmp_path / "trace.csv", warm="90%", evict="lfu,largest,cost,never")
    assert plan.warm == 0.9
    assert set(plan.policies) == {"lru", "lfu", "largest", "cost", "never"}
    legend = plan.figure().axes[0].get_legend()
    assert {text.get_text() for text in legend.get_texts()} == {*plan.policies, "today", "goal"}
    assert len(plan.trace) == len(served.plan(str(tmp_path / "trace.csv"), warm=0.9).trace)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda wb: wb.plan(warm="much"), r"^warm is a share, such as 99% or 0\.99, not 'much'$"),
        (lambda wb: wb.plan(warmth=0.9), "no argument 'warmth'; did you mean 'warm'"),
        (lambda wb: wb.plan(5), "^trace: 5 is not a path"),
        (lambda wb: wb.plan(evict=5), "^evict: 5 is none of lru, lfu"),
        (lambda wb: wb.plan().what_if(polcy="lru"), "no argument 'polcy'; did you mean 'policy'"),
        (lambda wb: wb.trace.save(5), "^path: 5 is not a path"),
        (lambda wb: wb.trace.save("pyproject.toml/x"), "^pyproject.toml/x: Not a directory$"),
    ],
)
def test_mistakes(served: Workbench, call: Callable[[Any], object], told: str) -> None:
    """Each is one line that says what is wrong."""
    with pytest.raises(UsageError, match=told):
        call(served)


def test_applied(served: Workbench) -> None:
    """Apply sets the budget at once."""
    plan = served.plan()
    plan.apply()
    try:
        assert served.budget == plan.needed_nbytes()
    finally:
        served.budget = "15MiB"


def test_pins_are_followed(served: Workbench) -> None:
    """A plan replays with the models that are pinned at the server."""
    served.pin("a")
    try:
        assert served.plan().pinned == (ModelId("a", 1),)
    finally:
        served.unpin("a")
    assert served.plan().pinned == ()


def test_no_budget_does(served: Workbench) -> None:
    """Where no budget reaches the goal nothing is applied.

    Of two requests for each model, the second comes while it is loading.
    """
    costs = {ModelId(name, 1): ModelCost(10 * 2**20, 1.0) for name in "ab"}
    asked = [TraceRequest(n * 0.1, model) for n, model in enumerate([*costs] * 2)]
    plan = Plan(Trace.of(asked), costs, 15 * 2**20, set_budget=pytest.fail)
    marks = {row[0] for row in plan.rows()}
    assert marks == {"", "today", "all at once"}
    with pytest.raises(UsageError, match=r"the budget stays: at 15\.0 MiB 100\.0% of the requests"):
        plan.apply()


def test_the_table_is_of_replays(served: Workbench) -> None:
    """A row a policy and budget; the sentence, the table and apply name the same budget."""
    plan = served.plan(evict="cost,lfu")
    head, *table = plan.rows()
    assert len(table) == 3 * len(plan.budgets)
    column = dict(zip(head, zip(*table, strict=True), strict=True))
    named = column["budget"][column[""].index("99 % warm, all at once")]
    assert named == str(plan).partition(" would")[0] == "20.0 MiB"
    drawn = plan.figure().axes[0].lines[0].get_xydata().tolist()
    assert drawn[0] == [10.0, 100.0]
    assert drawn[-1] == [20.0, 0.0]


def test_clients_that_wait_for_their_answers(served: Workbench) -> None:
    """Where requests overlapped, the plan says for whom a replay shows too many cold starts."""
    told = "replayed at its time: if clients wait for each answer"
    assert told not in repr(served.plan())
    together = Trace.of(each._replace(at_s=1.0, seconds=1.0) for each in served.trace)
    shown = served.plan(together)._repr_mimebundle_()
    assert all(told in shown[kind] for kind in ("text/plain", "text/html"))


def test_models_that_are_gone(served: Workbench) -> None:
    """Requests for models that are not served any more are counted, and left out of the plan."""
    requests = [*served.trace]
    gone = [requests[-1]._replace(model=ModelId("gone", 1))] * 3
    plan = served.plan(Trace.of([*requests, *gone]))
    assert str(plan) == str(served.plan())
    assert "3 requests are left out: of their models nothing is known" in repr(plan)
    one = repr(served.plan(Trace.of([*requests, gone[0]])))
    assert "1 request is left out: of its model nothing is known" in one
    with pytest.raises(UsageError, match="nothing is known of the models of the only request: "):
        served.plan(Trace.of(gone[:1]))
    with pytest.raises(UsageError, match="nothing is known of the models of all 3 req") as caught:
        served.plan(Trace.of(gone))
    assert "\n" not in str(caught.value)


def test_where_no_load_was_measured(sample_models: Path, tmp_path: Path) -> None:
    """A log for models of which none was ever loaded here is told what to do first."""
    path = tmp_path / "log.csv"
    path.write_text("time,model\n1,nobody\n2,wine\n3,digits\n")
    with Workbench(sample_models, device="cpu") as wb:
        with pytest.raises(UsageError, match=r"no model was loaded yet.*: wb\.load\('wine'\)$"):
            wb.plan(path)
        wb.load("wine")
        assert {model.name for model in wb.plan(path).trace.models} == {"wine", "digits"}


def test_nothing_to_plan() -> None:
    """Without requests a plan says what to do."""
    with Workbench() as wb, pytest.raises(UsageError, match="has no requests: send some"):
        wb.plan()


def test_the_command_line_says_where_it_is() -> None:
    """Who looks for a plan on the command line is told that a notebook has it."""
    told = CliRunner().invoke(main, ["plan", "x", "--warm", "99%"])
    assert told.exit_code == 2
    assert told.output.startswith("workbench: plan is for notebooks and Python: %workbench plan")
