"""Tritonclient's model configuration against a live server, as pytriton's client waits for it."""

from typing import Any

import pytest


@pytest.mark.parametrize("model", ["digits", "wine", "diabetes", "two"])
def test_pytriton_waits(triton: Any, model: str) -> None:
    """What pytriton's client reads before its first request: live, ready, and the configuration."""
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready(model)
    config = triton.get_model_config(model)
    assert config["max_batch_size"] >= 0
    assert config.get("model_transaction_policy", {}).get("decoupled", False) is False
    metadata = triton.get_model_metadata(model)
    for key, described in (("input", "inputs"), ("output", "outputs")):
        names = [(each["name"], each["data_type"]) for each in config[key]]
        assert sorted(names) == sorted(
            (each["name"], f"TYPE_{each['datatype']}".replace("TYPE_BYTES", "TYPE_STRING"))
            for each in metadata[described]
        )
        for each in config[key]:
            assert all(isinstance(dim, int) for dim in each["dims"])
