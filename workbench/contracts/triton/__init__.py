"""Triton's extensions of V2: their parameters, rows and settings, for HTTP and gRPC alike."""

from workbench.contracts.triton.metadata import model_config, model_metadata, server_metadata
from workbench.contracts.triton.repository import index, load, unload
from workbench.contracts.triton.settings import (
    change_log_settings,
    change_trace_settings,
    check_traced,
    log_settings,
    trace_settings,
)
from workbench.contracts.triton.statistics import statistics
from workbench.contracts.triton.words import GRPC, in_tritons_words

__all__ = [
    "GRPC",
    "change_log_settings",
    "change_trace_settings",
    "check_traced",
    "in_tritons_words",
    "index",
    "load",
    "log_settings",
    "model_config",
    "model_metadata",
    "server_metadata",
    "statistics",
    "trace_settings",
    "unload",
]
