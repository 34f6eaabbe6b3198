"""``GET /events``: the log, over HTTP."""

import httpx
import pytest

from workbench import Workbench


def test_the_log_by_number(server: Workbench, client: httpx.Client) -> None:
    """Each event has its number, time, kind, text and model; those after one can be asked for."""
    server.unload("wine")
    server.load("wine")
    told = client.get("/events").json()["events"]
    expected = server.events
    assert [row["number"] for row in told] == [entry.number for entry in expected]
    assert [row["text"] for row in told] == [str(entry.event) for entry in expected]
    assert [row["at_s"] for row in told] == [entry.at_s for entry in expected]
    loaded = [row for row in told if row["kind"] == "load"][-1]
    assert (loaded["model_name"], loaded["model_version"]) == ("wine", "1")
    assert "model_name" not in next(row for row in told if row["kind"] == "start")
    after = loaded["number"] - 1
    assert client.get(f"/events?after={after}").json()["events"][0] == loaded
    assert client.get(f"/events?after={10**17}").json() == {"events": []}


@pytest.mark.parametrize("after", ["-1", "one", "1.5", "9" * 19])
def test_a_number_that_is_none(client: httpx.Client, after: str) -> None:
    """It is a 400 in one line."""
    answer = client.get("/events", params={"after": after})
    assert answer.status_code == 400
    assert "'after' is the number of an event" in answer.json()["error"]


def test_another_parameter(client: httpx.Client) -> None:
    """A parameter in the query that there is not is refused by its name."""
    answer = client.get("/events", params={"after": "0", "since": "1"})
    assert answer.status_code == 400
    told = "there is no query parameter 'since' in this request; available: after"
    assert answer.json() == {"error": told}
