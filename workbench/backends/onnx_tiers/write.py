"""Write a prepared model, and compare its answers with those of the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workbench.backends.onnx import runtime
from workbench.backends.onnx.backend import runnable
from workbench.backends.onnx.errors import first_line
from workbench.backends.onnx.header.file import OnnxFile
from workbench.backends.onnx.options import prepared_options, session_options
from workbench.backends.onnx.values import made_up
from workbench.backends.onnx_tiers.folder import MODEL, WEIGHTS
from workbench.backends.onnx_tiers.realign import realign
from workbench.errors import LoadFailed


def write_prepared(file: OnnxFile, folder: Path) -> None:
    """Write *file* into *folder*, optimized and packed for this CPU, and check its answers.

    Raises ``LoadFailed``. ONNX Runtime may end the process; then the folder is incomplete.
    """
    options = session_options(runtime.engine(), 1, file.fold_limit_nbytes)
    options.optimized_model_filepath = str(folder / MODEL)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", WEIGHTS),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(key, value)
    try:
        plain = runtime.new_session(runnable(file, options), options)
    except Exception as error:  # its exceptions share no base below Exception
        raise LoadFailed(f"it cannot be written once it is loaded: {first_line(error)}") from error
    if (folder / WEIGHTS).exists():  # small weights are in the model's own file
        realign(folder / MODEL, folder / WEIGHTS)
    try:
        same = _answers_alike(file, plain, folder / MODEL)
    except Exception as error:  # its exceptions share no base below Exception
        raise LoadFailed(f"it cannot be tried on made-up inputs: {first_line(error)}") from error
    if not same:
        raise LoadFailed("its answers would differ from those of the model itself")


def _answers_alike(file: OnnxFile, plain: Any, model: Path) -> bool:
    """True if *model* answers exactly as *plain* does and, when mapped, up to rounding."""
    limit_nbytes = file.fold_limit_nbytes
    sessions = [
        runtime.new_session(
            str(model), prepared_options(runtime.engine(), 1, limit_nbytes, mapped=mapped)
        )
        for mapped in (False, True)
    ]
    for size in (1, 3):  # small matrices are computed by other kernels
        feed = made_up(plain.get_inputs(), size)
        wanted, packed, mapped = (session.run(None, feed) for session in (plain, *sessions))
        if not all(map(_same, wanted, packed)) or not all(map(_alike, wanted, mapped)):
            return False
    return True


def _same(one: Any, other: Any) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _alike(one: Any, other: Any) -> bool:
    """True if *other* differs from *one* only by the rounding of sums in another order."""
    if one.dtype.kind != "f":
        return _same(one, other)
    return np.allclose(one, other, rtol=1e-2, atol=1e-3 * np.abs(one).max(initial=1.0))
