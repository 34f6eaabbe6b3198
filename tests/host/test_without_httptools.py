"""Where httptools cannot be had, as on Windows, nor simdjson: slower, and the same answers."""

import json
import subprocess
import sys
from pathlib import Path

CODE = """
import json, socket, sys
sys.modules["httptools"] = sys.modules["simdjson"] = None  # to import them fails
import httpx, uvicorn
from workbench import Workbench

def raw(url, data):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

entry = {"name": "features", "shape": [1, 10], "datatype": "FP32", "data": [0.5] * 10}
with Workbench(sys.argv[1], device="cpu") as wb, httpx.Client(base_url=wb.url) as client:
    answers = [
        client.post("/v2/models/diabetes/infer", json={"inputs": [entry]}).status_code
        for _ in range(5)
    ]
    refusal = raw(wb.url, b"nonsense\\r\\n\\r\\n")
    print(json.dumps([answers, refusal, "httptools.parser" in sys.modules]))
"""


def test_without_httptools(sample_models: Path) -> None:
    """Requests are answered, and what is not HTTP is refused in JSON."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, sample_models],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    statuses, refusal, loaded = json.loads(done.stdout)
    assert (statuses, loaded) == ([200] * 5, False)
    head, _, body = refusal.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert list(json.loads(body)) == ["error"]
