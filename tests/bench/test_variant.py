"""Changed configurations."""

import pytest

from workbench.bench.variant import Variant, variants
from workbench.errors import UsageError

CONFIG = {
    "name": "m",
    "max_batch_size": 0,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"name": "m", "kind": "KIND_CPU", "count": 6}],
    "parameters": {"other": {"string_value": "1"}},
}


def test_nothing_is_changed_by_itself() -> None:
    """Without changes the configuration is the same."""
    assert Variant().of(CONFIG) == CONFIG
    assert str(Variant()) == "as configured"


def test_batching() -> None:
    """With batching the first dimension is declared a batch, and without the batcher is gone."""
    changed = Variant(batching=True).of(CONFIG)
    assert changed["max_batch_size"] == 64
    assert [tensor["dims"] for end in ("input", "output") for tensor in changed[end]] == [[4], []]
    assert changed["dynamic_batching"] == {}
    own = {**changed, "max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 5}}
    assert Variant(batching=True).of(own) == own
    assert "dynamic_batching" not in Variant(batching=False).of(own)
    assert Variant(batching=False).of(own)["max_batch_size"] == 8


def test_a_reshape_loses_its_batch_too() -> None:
    """What the model itself takes has a batch as well: with batching it is not declared either."""
    tensor = {
        "name": "x",
        "data_type": "TYPE_FP32",
        "dims": [-1, 4],
        "reshape": {"shape": [-1, 2, 2]},
    }
    changed = Variant(batching=True).of({**CONFIG, "input": [tensor]})
    assert changed["input"] == [{**tensor, "dims": [4], "reshape": {"shape": [2, 2]}}]
    for shape in ([], [4], [1, 2, 2]):
        with pytest.raises(UsageError, match="takes no batches"):
            Variant(batching=True).of(
                {**CONFIG, "input": [{**tensor, "reshape": {"shape": shape}}]}
            )


def test_instances_and_threads() -> None:
    """Instances stay on their device; other parameters stay."""
    changed = Variant(instances=2, threads=1).of(CONFIG)
    assert changed["instance_group"] == [{"kind": "KIND_CPU", "count": 2}]
    assert changed["parameters"] == {
        "other": {"string_value": "1"},
        "intra_op_thread_count": {"string_value": "1"},
    }
    assert str(Variant(True, 2, 1)) == "batching, 2 instances, 1 thread"


def test_a_fixed_first_dimension_is_no_batch() -> None:
    """A model whose first dimension has one size is refused, in one line."""
    fixed = {**CONFIG, "output": [{"name": "y", "dims": [4]}]}
    with pytest.raises(UsageError, match="the first dimension of each output must be -1"):
        Variant(batching=True).of(fixed)


def test_all_combinations() -> None:
    """Each is tried with each; what is not given is left as it is."""
    assert variants((), (), ()) == (Variant(),)
    assert len(variants((False, True), (1, 2), ())) == 4
