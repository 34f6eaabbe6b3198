"""The second wire: what it adds to the cases of the data plane, and how little it is."""

import asyncio
import json
from pathlib import Path
from typing import Any

import second_wire
from each_wire import Rig
from second_wire import LineServer


def test_it_is_small_and_has_nothing_of_its_own() -> None:
    """At most 80 lines, without a thread, a lock, a lease or a session."""
    text = Path(second_wire.__file__).read_text()
    code = [line for line in text.splitlines() if line.strip()]
    assert len(code) <= 80
    for word in ("thread", "Lock", "Lease", "lease", "Session", "Pool", "Semaphore"):
        assert word not in text, word


def test_load_unload_index_events_and_nonsense(rig: Rig) -> None:
    """What is loaded by one verb is told by the others."""

    async def case() -> None:
        async with await LineServer(rig.core).listen(rig.path):
            reader, writer = await asyncio.open_unix_connection(rig.path)

            async def ask(verb: str, **more: Any) -> Any:
                writer.write(json.dumps({"verb": verb, **more}).encode() + b"\n")
                return json.loads(await asyncio.wait_for(reader.readline(), 30))

            await ask("load", model="a")
            assert ["a", 1, "READY"] in (await ask("index"))["result"]
            await ask("unload", model="a")
            assert ["a", 1, "UNAVAILABLE"] in (await ask("index"))["result"]
            events = (await ask("events"))["result"]
            assert [kind for _, kind in events][-4:] == ["loading", "load", "unloading", "unload"]
            assert (await ask("events", after=events[-1][0]))["result"] == []
            assert (await ask("sing"))["kind"] == "InvalidRequest"
            assert (await ask("infer", model="a"))["kind"] == "InvalidRequest"
            writer.close()
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  # of the connection that ends
                await asyncio.sleep(0)

    asyncio.run(case())
