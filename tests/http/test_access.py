"""Who is let in, at the socket: each rule on the short cut and on the long way alike."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from ensemble_texts import ensemble_of

from workbench import Workbench
from workbench.errors import PortInUse, SettingError

TOKEN = "a-token-of-my-own-0123"
INFER = "/v2/models/double/infer"
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [2]}]})
FOREIGN = {"Origin": "https://evil.test"}

Serve = Callable[..., Workbench]


def server_of(models: Path, settings: Mapping[str, Any]) -> Workbench:
    """A server of *models* and of a function, which is to be started."""
    workbench = Workbench(models, device="cpu", **settings)
    specs = {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}}
    workbench.register(lambda x: 2 * x, name="double", **specs)
    return workbench


@pytest.fixture
def serve(sample_models: Path) -> Iterator[Serve]:
    """Starts servers of the sample models and of a function; each is stopped at the end."""
    running: list[Workbench] = []

    def start(**settings: Any) -> Workbench:
        running.append(server_of(sample_models, settings))
        return running[-1].start()

    yield start
    for workbench in running:
        workbench.stop()


def heads(url: str, *lines: str) -> bytes:
    """An inference with exactly these header lines, after one that the short cut may know."""
    return "\r\n".join(
        [f"POST {url} HTTP/1.1", *lines, f"Content-Length: {len(BODY)}", "", BODY]
    ).encode()


def statuses(workbench: Workbench, *requests: bytes) -> list[int]:
    """The status of each of *requests*, one after the other on one connection."""
    with socket.create_connection(("127.0.0.1", port_of(workbench)), 10) as connection:
        answers = connection.makefile("rb")
        return [_status(connection, answers, request) for request in requests]


def _status(connection: socket.socket, answers: Any, request: bytes) -> int:
    connection.sendall(request)
    status = int(answers.readline().split()[1])
    nbytes = 0
    while (line := answers.readline().strip().lower()) != b"":
        name, _, value = line.partition(b":")
        nbytes = int(value) if name == b"content-length" else nbytes
    answers.read(nbytes)
    return status


def both_ways(workbench: Workbench, *lines: str) -> set[int]:
    """The statuses that the short cut and the long way (a query) give to the same header lines."""
    short, long = heads(INFER, *lines), heads(f"{INFER}?a=1", *lines)
    return {*statuses(workbench, short, short, short), *statuses(workbench, long)}


def port_of(workbench: Workbench) -> int:
    return int(workbench.url.rpartition(":")[2])


# ── host and page ──

OWN_HOSTS = (
    "localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1:1", "127.8.9.1", "[::1]:2",
    "[::ffff:127.0.0.1]",
)  # fmt: skip
OTHER_HOSTS = (
    "evil.test", "localhost.evil.test", "192.0.2.1", "[::ffff:192.0.2.1]", "[::1", "localhost:x",
    "", "0.0.0.1",
)  # fmt: skip
NO_ADDRESS = ("0.0.0.0:8000", "0.0.0.0", "[::]:8000", "[::ffff:0.0.0.0]")
"""Programs may dial these, and browsers, before and after a program, may not."""
OTHER_SITES = (
    "Origin: https://evil.test",
    "Origin: null",
    "Origin: http://localhost:8888",  # another server of this machine
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: cross-site|Origin: http://localhost:8000",  # our own: a contradiction
    "Sec-Fetch-Site: same-site",
    "Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate|Sec-Fetch-Dest: document",
    "Origin: https://evil.test|Content-Type: text/plain",
)
OWN_SITES = (
    "Origin: http://0.0.0.0:8000", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none",
    "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image", "Sec-Fetch-User: ?1",
)  # fmt: skip
ADMISSION: list[tuple[dict[str, str], str, int]] = [
    ({}, "", 400),
    ({}, "Host: localhost|Host: localhost", 400),
    *(({}, f"Host: {host}", 200) for host in (*OWN_HOSTS, *NO_ADDRESS)),
    *(({}, f"Host: {host}", 421) for host in OTHER_HOSTS),
    *(({}, f"Host: {NO_ADDRESS[0]}|{page}", 421) for page in (*OWN_SITES, *OTHER_SITES)),
    *(({}, f"Host: {host}|{OWN_SITES[1]}", 421) for host in NO_ADDRESS),
    *(({}, f"Host: localhost:8000|{page}", 403) for page in OTHER_SITES),
    ({}, "Host: localhost:8888|Origin: http://localhost:8888|Sec-Fetch-Site: same-origin", 200),
    ({}, "Host: 127.0.0.1|Origin: https://127.0.0.1", 200),  # behind a proxy
    ({}, "Host: 127.0.0.1:80|Origin: http://127.0.0.1", 200),
    ({}, "Host: 127.0.0.1:443|Origin: https://127.0.0.1", 200),
    ({}, "Host: 127.0.0.1:443|Origin: http://127.0.0.1", 403),
    ({}, "Host: 127.0.0.1:80|Origin: https://127.0.0.1", 403),
    ({"allow_hosts": "other.test, LAB.test"}, "Host: lab.test:99", 200),
    ({"allow_hosts": "*"}, "Host: any.test", 200),
    ({"allow_hosts": "0.0.0.0"}, "Host: 0.0.0.0:8000|Origin: http://0.0.0.0:8000", 200),
    ({"allow_hosts": "0.0.0.0"}, "Host: 0.0.0.0:8000|Origin: https://evil.test", 403),
    ({"allow_origins": "https://lab.test"}, "Host: localhost|Origin: https://lab.test", 200),
    ({"allow_origins": "https://lab.test"}, "Host: 0.0.0.0|Origin: https://lab.test", 421),
    ({"allow_origins": "https://lab.test"},
        "Host: localhost|Origin: https://lab.test.evil.test", 403),
    ({"host": "0.0.0.0", "token": "off"}, "Host: 127.0.0.1", 200),
    ({"host": "0.0.0.0", "token": "off"}, "Host: 0.0.0.0", 200),
    ({"host": "0.0.0.0", "token": "off"}, "Host: 192.0.2.7", 421),
]  # fmt: skip
"""Settings, header lines, and the status of a request with these."""


@pytest.fixture(scope="module")
def served(sample_models: Path) -> Iterator[Serve]:
    """Servers that tests of the same settings share."""
    with ExitStack() as running:
        yield cache(lambda **settings: running.enter_context(server_of(sample_models, settings)))


@pytest.mark.parametrize(("settings", "lines", "status"), ADMISSION)
def test_who_is_let_in(served: Serve, settings: dict[str, str], lines: str, status: int) -> None:
    """A request names this server, and comes from no page of another site: on both ways."""
    assert both_ways(served(**settings), *filter(None, lines.split("|"))) == {status}


def test_a_refused_host_says_how_to_allow_it(served: Serve) -> None:
    """The one line names the host and the setting."""
    answer = httpx.get(f"{served().url}/v2", headers={"Host": "lab.test:99"})
    told = "start the server with allow_hosts='lab.test' to allow them"
    assert answer.json()["error"].endswith(told)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/v2/repository/index", "/schema", "/nothing"])
def test_every_path_and_method_is_behind_it(served: Serve, method: str, path: str) -> None:
    """No path and no method is left out."""
    answer = httpx.request(method, served().url + path, headers=FOREIGN)
    assert answer.status_code == 403
    assert method == "HEAD" or "allow_origins='https://evil.test'" in answer.json()["error"]


def test_a_link_in_a_page_of_another_site(served: Serve) -> None:
    """A link that is clicked anywhere opens; a frame, an image or a script does not load."""
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    url = f"{served().url}/schema"
    assert httpx.get(url, headers=link).status_code == 200
    for dest, mode in (("iframe", "navigate"), ("image", "no-cors"), ("script", "no-cors")):
        other = link | {"Sec-Fetch-Dest": dest, "Sec-Fetch-Mode": mode}
        assert httpx.get(url, headers=other).status_code == 403


def test_allowed_origins(serve: Serve) -> None:
    """A page of an allowed site is answered, may read the answer, and its preflight is answered."""
    workbench = serve(allow_origins="https://lab.test, http://other.test:99")
    page = {"Origin": "https://lab.test", "Sec-Fetch-Site": "cross-site"}
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    allowed = httpx.options(workbench.url + INFER, headers=page | asks)
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == "https://lab.test"
    assert allowed.headers["access-control-allow-headers"] == "authorization"
    assert "POST" in allowed.headers["access-control-allow-methods"]
    answer = httpx.post(workbench.url + INFER, headers=page, content=BODY)
    assert answer.json()["outputs"][0]["data"] == [4]
    assert answer.headers["access-control-allow-origin"] == "https://lab.test"
    assert answer.headers["vary"] == "origin"
    assert httpx.options(workbench.url + INFER, headers=FOREIGN | asks).status_code == 403


# ── token ──


def test_every_path_asks_for_the_token(serve: Serve) -> None:
    """Without the token no path is answered, not even that there is nothing there."""
    workbench = serve(token=TOKEN)
    assert both_ways(workbench, "Host: localhost") == {401}
    for path in ("/", "/v2/health/live", "/metrics", "/schema", "/v2/repository/index", "/nothing"):
        for method in ("GET", "POST", "DELETE"):
            answer = httpx.request(method, workbench.url + path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer TOKEN" in answer.json()["error"]


@pytest.mark.parametrize(
    "authorization",
    [
        f"Bearer {TOKEN}",
        f"bearer {TOKEN}",
        f"token {TOKEN}",
        f"AWS4-HMAC-SHA256 Credential={TOKEN}/20261122/us-east-1/x/aws4_request, Signature=00",
    ],
)
def test_the_token_lets_in(serve: Serve, authorization: str) -> None:
    """The token is taken as clients send it; on both ways."""
    workbench = serve(token=TOKEN)
    assert both_ways(workbench, "Host: localhost", f"Authorization: {authorization}") == {200}
    wrong = authorization.replace(TOKEN, TOKEN[:-1] + "x")
    assert both_ways(workbench, "Host: localhost", f"Authorization: {wrong}") == {401}
    short = authorization.replace(TOKEN, TOKEN[:-1])
    assert both_ways(workbench, "Host: localhost", f"Authorization: {short}") == {401}


def test_a_known_head_does_not_let_in_another_token(serve: Serve) -> None:
    """What the short cut remembers of a connection is the head with its token, and no other."""
    workbench = serve(token=TOKEN)
    good = heads(INFER, "Host: localhost", f"Authorization: Bearer {TOKEN}")
    bad = heads(INFER, "Host: localhost", f"Authorization: Bearer {TOKEN[:-1]}x")
    none = heads(INFER, "Host: localhost")
    assert statuses(workbench, good, good, good, bad, good, none) == [200, 200, 200, 401, 200, 401]


def test_the_link_signs_a_browser_in(serve: Serve) -> None:
    """The link with the token sets a cookie, which does not hold it, and leads on without it."""
    workbench = serve(token=TOKEN)
    browser = httpx.Client(base_url=workbench.url, headers={"Accept": "text/html,*/*"})
    with browser:
        answer = browser.get("/schema", params={"a": "1", "token": TOKEN})
        assert answer.status_code == 303
        assert answer.headers["location"] == "./schema?a=1"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Path" not in cookie  # a proxy may have put the page under a path of its own
        assert TOKEN not in cookie
        assert browser.get("/schema").status_code == 200
        assert browser.get("/", params={"token": TOKEN}).headers["location"] == "./"
        name = f"workbench-{port_of(workbench)}"
        for wrong in (TOKEN, browser.cookies[name][:-1] + "x", ""):
            assert httpx.get(workbench.url, cookies={name: wrong}).status_code == 401
    assert httpx.get(workbench.url, params={"token": TOKEN}).status_code == 200
    assert httpx.get(workbench.url, params={"token": "x" * 20}).status_code == 401


def test_auto_makes_a_token_where_others_are(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under JupyterHub a token is made, is in the link, and stays through a restart."""
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    workbench = serve()
    token = workbench.token
    assert len(token) >= 32
    assert workbench.link == f"{workbench.url}/?token={token}"
    assert workbench.link in repr(workbench)
    assert workbench.restart().token == token
    page = f"/user/ada/proxy/{port_of(workbench)}/?token={token}"
    assert workbench.page == page
    assert f'href="{page}"' in workbench._repr_html_()
    docs = f"/user/ada/proxy/{port_of(workbench)}/v2/models/wine/docs?token={token}"
    assert workbench["wine"].docs_url == docs
    assert f'href="{page}"' in workbench.dashboard()._head_html()
    assert httpx.get(workbench.link).status_code == 200
    assert httpx.get(workbench.url).status_code == 401
    assert serve(token="off").token == ""


def test_a_link_is_signed_in_by_any_line_of_accept(serve: Serve) -> None:
    """Several lines of Accept are one list, also where a link brings the token."""
    workbench = serve(token=TOKEN)
    lines = [("accept", "application/xhtml+xml"), ("accept", "text/html")]
    link = f"{workbench.url}/?token={TOKEN}"
    assert httpx.get(link, headers=lines).status_code == 303


def test_a_token_in_a_long_query_is_not_looked_for(serve: Serve) -> None:
    """A query of kilobytes is not searched."""
    workbench = serve(token=TOKEN)
    for length, status in ((1000, 200), (5000, 401)):
        query = {"token": TOKEN, "x": "a" * length}
        assert httpx.get(f"{workbench.url}/v2", params=query).status_code == status


def test_replies_vary_by_origin_where_one_is_allowed(serve: Serve) -> None:
    """A cache keeps apart what pages of allowed sites get, and what others do."""
    for allowed, told in (("", ""), ("https://ada.example", "origin")):
        workbench = serve(allow_origins=allowed)
        assert httpx.get(f"{workbench.url}/v2").headers.get("vary", "") == told


def test_a_made_token_goes_where_none_is_needed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A token that was made does not stay through a restart at a socket, which needs none."""
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    workbench = serve()
    assert workbench.token
    assert workbench.restart(host=f"unix:{tmp_path / 's'}").token == ""


def test_a_token_of_ones_own_is_not_shown(serve: Serve) -> None:
    """What a notebook shows is saved with it: a token that lasts is not in it."""
    workbench = serve(token=TOKEN)
    for shown in (repr(workbench), workbench.link, repr(workbench.settings), str(workbench.events)):
        assert TOKEN not in shown


def test_two_authorization_headers(serve: Serve) -> None:
    """Of two it cannot be known which a proxy has looked at: neither lets in, on both ways."""
    workbench = serve(token=TOKEN)
    good, bad = f"Authorization: Bearer {TOKEN}", "Authorization: Bearer 0123456789abcdef"
    for lines in ((good, bad), (bad, good), (good, good)):
        assert both_ways(workbench, "Host: localhost", *lines) == {401}


def test_headers_behind_the_body_are_none(serve: Serve) -> None:
    """Neither the host nor the token of a chunked body's trailer counts."""
    workbench = serve(token=TOKEN)
    token = f"Authorization: Bearer {TOKEN}"
    for first, last, status in (("Host: localhost", token, 401), (token, "Host: localhost", 400)):
        lines = [
            f"POST {INFER} HTTP/1.1",
            first,
            "Transfer-Encoding: chunked",
            "",
            f"{len(BODY):x}",
        ]
        text = "\r\n".join([*lines, BODY, "0", last, "", ""])
        assert statuses(workbench, text.encode()) == [status]


def test_a_stranger_does_not_learn_which_models_are_functions(serve: Serve) -> None:
    """Without a token the answer is the same for a function, another model, and none at all."""
    workbench = serve(token=TOKEN, restrict="functions=off,model-repository=off")
    paths = ("double/infer", "digits/infer", "nothing/infer", "double/generate")
    answers = [httpx.post(f"{workbench.url}/v2/models/{path}") for path in paths]
    answers.append(httpx.post(f"{workbench.url}/v2/repository/index"))
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}


# ── groups ──


def ask(workbench: Workbench, path: str, token: str = "", body: str = "{}") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.post(workbench.url + path, headers=headers, content=body).status_code


def test_closed_groups(serve: Serve) -> None:
    """A group that is off is refused, however its path is spelled; the rest goes on."""
    workbench = serve(restrict="model-repository,functions,shared-memory")
    for path in (
        "/v2/repository/index",
        "/v2/repository/models/digits/load",
        "/v2/%72epository/models/digits/unload",
        "/v2/systemsharedmemory/region/a/register",
        "/v2/systemsharedmemory/unregister",
        INFER,
        "/v2/models/d%6fuble/versions/1/infer",
        "/v2/models/double/generate",
        "/v2/models/double/generate_stream",
    ):
        assert ask(workbench, path, body=BODY) in (403, 404)
    assert ask(workbench, "/v2/repository/index") == 403
    assert both_ways(workbench, "Host: localhost") == {403}
    assert httpx.get(f"{workbench.url}/v2/models/double").status_code == 200
    assert ask(workbench, "/v2/models/double/generate", body='{"x": [2]}') == 403


@pytest.mark.parametrize("by_way", [False, True])
@pytest.mark.parametrize("verb", ["infer", "generate"])
def test_what_becomes_a_function_while_its_request_comes(
    serve: Serve, verb: str, by_way: bool
) -> None:
    """A model that is registered, or loaded, behind a request's head is not run for it either."""
    workbench = serve(restrict="functions=off")
    calls: list[Any] = []
    inputs = {"x": ("FP32", [-1])}
    body = BODY if verb == "infer" else '{"x": [2]}'
    name = "later_by_way" if by_way else "later"
    head = f"POST /v2/models/{name}/{verb} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(workbench)), 10) as connection:
        connection.sendall((head + body[:5]).encode())
        assert httpx.get(f"{workbench.url}/v2/health/live").status_code == 200  # the head is read
        workbench.register(
            lambda x: calls.append(x) or x, name="later", inputs=inputs, outputs={"y": inputs["x"]}
        )
        if by_way:
            workbench.load("later_by_way", config=ensemble_of("later"))
        connection.sendall(body[5:].encode())
        answer = connection.makefile("rb").readline()
    assert answer.split()[1] == b"403"
    assert calls == []


# ── a socket in the file system ──


def test_unix_socket(serve: Serve, tmp_path: Path) -> None:
    """unix:PATH is for its user only, and gone after the stop; a dead one there is replaced."""
    path = tmp_path / "workbench.sock"
    workbench = serve(host=f"unix:{path}")
    assert workbench.url == f"unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        answer = client.post(f"http://localhost{INFER}", content=BODY)
        assert answer.json()["outputs"][0]["data"] == [4]
        assert client.get("http://evil.test/v2").status_code == 421
    with pytest.raises(PortInUse, match="stop it, or choose another path"):
        serve(host=f"unix:{path}")
    workbench.stop()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert serve(host=f"unix:{path}").is_running


def test_unix_socket_by_a_relative_path(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed at the stop, wherever the process has gone meanwhile."""
    monkeypatch.chdir(tmp_path)
    workbench = serve(host="unix:workbench.sock")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (tmp_path / "workbench.sock").is_socket()
    workbench.stop()
    assert not (tmp_path / "workbench.sock").exists()


def test_unix_socket_that_cannot_be(serve: Serve, tmp_path: Path) -> None:
    """What is in the way stays, and the message says what it is."""
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, tmp_path / "no" / "folder", tmp_path / ("x" * 200)):
        with pytest.raises(SettingError, match="cannot be listened on"):
            serve(host=f"unix:{path}")
    assert file.read_text() == "mine"
