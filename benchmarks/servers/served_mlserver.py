"""MLServer's own runtimes: ``python served_mlserver.py FOLDER PORT ... THING``, of three ports."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mlserver import MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters
from mlserver.utils import install_uvloop_event_loop

folder, port, grpc_port, metrics_port, thing = sys.argv[1:]
if thing == "boosted":
    from mlserver_xgboost import XGBoostModel as Runtime

    path = Path(folder) / "boosted.json"
else:
    from mlserver_sklearn import SKLearnModel as Runtime

    path = Path(folder) / f"{thing}.joblib"
settings = Settings(
    debug=False,
    host="127.0.0.1",
    http_port=int(port),
    grpc_port=int(grpc_port),
    metrics_port=int(metrics_port),
    parallel_workers=0,
)
served = ModelSettings(
    name="batch",
    implementation=Runtime,
    parameters=ModelParameters(uri=str(path)),
    max_batch_size=32,
    max_batch_time=0.002,
)


async def start() -> None:
    """As its command line does."""
    await MLServer(settings).start([served])


install_uvloop_event_loop()
asyncio.run(start())
