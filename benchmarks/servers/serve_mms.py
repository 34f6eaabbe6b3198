"""multi-model-server: ``python serve_mms.py FOLDER PORT HANDLER``, in an environment that has it.

*FOLDER* takes its log and its sockets; models are loaded by their absolute paths. It is started as
SageMaker's inference toolkit starts it for multi-model endpoints, with one worker for a model.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mms

CONFIG = """
model_store=/
inference_address=http://127.0.0.1:{port}
management_address=http://127.0.0.1:{port}
default_workers_per_model=1
default_service_handler={handler}:handle
async_logging=true
decode_input_request=false
"""
LOGGING = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration><Appenders><Console name="out"><PatternLayout pattern="%m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""

home = Path(mms.__file__).parent
folder, port, handler = sys.argv[1:]
config, logging = Path(folder, "config.properties"), Path(folder, "log4j2.xml")
config.write_text(CONFIG.format(port=port, handler=handler))
logging.write_text(LOGGING)
os.chdir(folder)
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
command = [
    "java",
    f"-Dmodel_server_home={home.parent}",
    f"-Djava.io.tmpdir={folder}",
    f"-Dlog4j.configurationFile={logging.as_uri()}",
    *("-cp", f"{home}/frontend/*", "com.amazonaws.ml.mms.ModelServer"),
    *("--python", sys.executable, "-f", str(config)),
]
os.execvp("java", command)
