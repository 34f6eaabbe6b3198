"""Access of requests, by their host, the web page that sent them, and their token.

Any page that a user visits can make the browser send requests, also to servers on this machine. So
a request has to name this server as its host (otherwise the page's own name may point to this
machine: DNS rebinding), and must not come from a page of another site, unless the settings allow
that site. Fetch Metadata (W3C) and RFC 6454 say how browsers describe the page; RFC 6750 defines
bearer tokens.

The address 0.0.0.0 also leads to this machine, and browsers neither take it for this machine's own
nor describe each request to it. So it names this server only to programs that are no browsers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import parse_qsl, urlencode

from workbench.auth import Auth, token_of
from workbench.errors import AccessDenied, HostRefused, InvalidRequest
from workbench.http.reply import Reply
from workbench.settings import Settings
from workbench.tokens import UNIX, same

Headers = Sequence[tuple[bytes, bytes]]  # their names in lower case
ServerAddress = tuple[str, int | None] | None  # the address of this end of the connection

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]/@ ]+?)\.?)(?::[0-9]{1,5})?")
_OF_BROWSERS = frozenset(
    (b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user")
)
_OTHER_SITES = frozenset((b"cross-site", b"same-site"))
_ALL, _PROGRAMS, _NOBODY = "all", "programs", ""  # who may call: those that are no browsers
_MOST_HOSTS = 64  # how many Host headers are remembered
_PREFLIGHT_S = b"600"
_QUERY_NBYTES = 4096  # a longer query is not searched for a token
_KEEP_NOTHING = (b"cache-control", b"no-store")


def joined(headers: Headers, name: bytes) -> bytes:
    """The header of that *name*, whose lines are one list (RFC 9110, 5.3); or nothing."""
    return b", ".join(value for key, value in headers if key == name)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The parts of a request on which access depends, with the address that it came to."""

    method: str
    path: str
    query: str
    headers: Headers
    server: ServerAddress

    @classmethod
    def of(cls, scope: Any) -> RequestHead:
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        server = scope.get("server")
        return cls(scope["method"], path, query, scope["headers"], server and tuple(server))

    def header(self, name: bytes) -> bytes:
        """The first header of that *name*, or nothing."""
        return next((value for key, value in self.headers if key == name), b"")

    def has(self, name: bytes) -> bool:
        return any(key == name for key, _ in self.headers)

    @property
    def is_of_page(self) -> bool:
        """True if a browser says that a page sends the request."""
        return any(key in _OF_BROWSERS for key, _ in self.headers)


class Access:
    """Decides about requests by *settings*, and the server's *token*, ``""`` for none.

    *auth* decides by what a request ``carries``.
    """

    def __init__(self, settings: Settings, token: str) -> None:
        self._any_host = "*" in settings.allow_hosts
        self._names = {"localhost", *settings.allow_hosts}
        if not settings.host.startswith(UNIX):
            self._names.add(settings.host.lower())
        self._origins = frozenset(origin.encode() for origin in settings.allow_origins)
        self._token = token
        self.auth = Auth(token, settings.restrict)
        self._known_hosts: dict[tuple[bytes, ServerAddress], str] = {}
        digest = hmac.new(token.encode(), b"workbench cookie", hashlib.sha256)
        self._cookie_text = digest.hexdigest()

    def passes(self, headers: Headers, server: ServerAddress) -> bool:
        """True if an inference request passes the quick check of its headers.

        It passes if it names this server, comes from no browser, has the token, and ``functions``
        is not closed. Otherwise ``admit`` and *auth* may still let it in.
        """
        hosts = 0
        authorization: bytes | None = None
        for name, value in headers:
            if name == b"host":
                hosts += 1
                if (value, server) not in self._known_hosts and not self._callers(value, server):
                    return False
            elif name in _OF_BROWSERS:
                return False
            elif name == b"authorization":
                if authorization is not None:
                    return False
                authorization = value
        if hosts != 1 or self.auth.closes("functions"):
            return False
        return not self._token or same(token_of(authorization or b""), self._token)

    # ── host and page ──

    def admit(self, asked: RequestHead) -> bytes:
        """Let the request in by its host and the page that sent it.

        Returns the origin of that page if the settings allow it to read the answer, else ``""``.
        Raises ``InvalidRequest``, ``HostRefused``, ``AccessDenied``.
        """
        host = self._check_host(asked)
        origin = asked.header(b"origin")
        if not asked.has(b"origin"):
            self._check_site(asked)
            return b""
        if origin in self._origins:
            return origin
        if origin.lower() not in _origins_of(host):
            raise AccessDenied(_not_allowed(origin))
        self._check_site(asked)
        return b""

    def _check_host(self, asked: RequestHead) -> bytes:
        """The host that the request names, which is this server."""
        hosts = [value for name, value in asked.headers if name == b"host"]
        if len(hosts) != 1:
            raise InvalidRequest("a request has exactly one Host header")
        (host,) = hosts
        callers = self._callers(host, asked.server)
        if not callers or (asked.is_of_page and callers == _PROGRAMS):
            shown = _host_name(host) or host.decode("latin-1")
            raise HostRefused(
                f"requests to the host name {shown!r} are refused: "
                f"start the server with allow_hosts={shown!r} to allow them"
            )
        return host

    def _callers(self, host: bytes, server: ServerAddress) -> str:
        """The clients that may use this Host header: all, programs, or nobody (not remembered)."""
        known = self._known_hosts.get((host, server), _NOBODY)
        if known:
            return known
        found = self._callers_by(_host_name(host), server)
        if found:
            if len(self._known_hosts) >= _MOST_HOSTS:
                self._known_hosts.clear()
            self._known_hosts[host, server] = found
        return found

    def _callers_by(self, name: str, server: ServerAddress) -> str:
        if name and (self._any_host or name in self._names):
            return _ALL
        address = _address(name)
        if address is None:
            return _NOBODY
        if address.is_unspecified:
            return _PROGRAMS
        is_ours = address.is_loopback or (server is not None and address == _address(server[0]))
        return _ALL if is_ours else _NOBODY

    def _check_site(self, asked: RequestHead) -> None:
        """A page of another site may only link to this server."""
        if asked.header(b"sec-fetch-site") not in _OTHER_SITES:
            return
        opens = (asked.header(b"sec-fetch-mode"), asked.header(b"sec-fetch-dest"))
        if asked.method in ("GET", "HEAD") and opens == (b"navigate", b"document"):
            return
        raise AccessDenied(_not_allowed(asked.header(b"origin")))

    def preflight(self, asked: RequestHead, origin: bytes) -> Reply | None:
        """The answer to a browser that asks whether a page of *origin* may send a request."""
        if not origin or asked.method != "OPTIONS":
            return None
        if not asked.has(b"access-control-request-method"):
            return None
        headers = [
            *self.shared_with(origin),
            (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
            (b"access-control-allow-headers", asked.header(b"access-control-request-headers")),
            (b"access-control-max-age", _PREFLIGHT_S),
        ]
        if asked.has(b"access-control-request-private-network"):
            headers.append((b"access-control-allow-private-network", b"true"))
        return Reply(204, tuple(headers), ())

    def shared_with(self, origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """The headers that let a page of *origin* read the answer."""
        if not origin:
            return ((b"vary", b"origin"),) if self._origins else ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"inference-header-content-length, x-request-id"),
            (b"vary", b"origin"),
        )

    # ── token ──

    def carries(self, asked: RequestHead, token: str) -> bool:
        """True if the request has *token*; a cookie stands for the server's token."""
        if any(same(given, token) for given in _tokens(asked)):
            return True
        return token == self._token and same(self._cookie(asked), self._cookie_text)

    def sign_in(self, asked: RequestHead) -> Reply | None:
        """If the token came in a link: set a cookie, and redirect to the address without the token.

        So the token is neither in the browser's history nor in its address bar.
        """
        is_page = asked.method == "GET" and b"text/html" in joined(asked.headers, b"accept")
        if not self._token or not is_page:
            return None
        if not same(_token_in_query(asked.query), self._token):
            return None
        rest = urlencode([pair for pair in parse_qsl(asked.query) if pair[0] != "token"])
        # relative, so that it holds behind a proxy too
        location = f"./{asked.path.rpartition('/')[2]}" + (f"?{rest}" if rest else "")
        # without a path it is for the pages beside this one, also where a proxy has put them
        # under a path of their own; lax, since the link is in a page of another site, and pages
        # of others send no POST with it
        path = "" if asked.path.count("/") == 1 else "Path=/; "
        cookie = f"{_cookie_name(asked.server)}={self._cookie_text}; {path}HttpOnly; SameSite=Lax"
        headers = ((b"location", location.encode()), (b"set-cookie", cookie.encode()))
        return Reply(303, (*headers, _KEEP_NOTHING), ())

    def _cookie(self, asked: RequestHead) -> bytes:
        """The value of this server's cookie: made from the token, without showing it."""
        wanted = _cookie_name(asked.server).encode()
        for cookie in asked.header(b"cookie").split(b";"):
            name, _, value = cookie.strip().partition(b"=")
            if name == wanted:
                return value
        return b""


def _cookie_name(server: ServerAddress) -> str:
    """The name has the port, since browsers keep cookies by host only."""
    return f"workbench-{server[1]}" if server and server[1] else "workbench"


def _tokens(asked: RequestHead) -> Iterable[bytes]:
    lines = [value for name, value in asked.headers if name == b"authorization"]
    if len(lines) == 1:  # with two of them, a proxy may have checked the other one
        yield token_of(lines[0])
    yield _token_in_query(asked.query)


def _token_in_query(query: str) -> bytes:
    if "token=" not in query or len(query) > _QUERY_NBYTES:
        return b""
    return dict(parse_qsl(query)).get("token", "").encode()


def _not_allowed(origin: bytes) -> str:
    shown = origin.decode("latin-1")
    page = f"a page of {shown}" if shown not in ("", "null") else "a page of another site"
    allow = repr(shown) if "://" in shown else "its origin"
    return f"{page} may not send requests: start the server with allow_origins={allow} to allow it"


def _host_name(host: bytes) -> str:
    """The name or address in a Host header, without its port; nothing if it is malformed."""
    match = _HOST.fullmatch(host.decode("latin-1").lower())
    return (match["address"] or match["name"]) if match else ""


def _origins_of(host: bytes) -> tuple[bytes, ...]:
    """The origins of pages that came from *host*; browsers leave the scheme's own port out."""
    text = host.lower()
    plain, secure = text.removesuffix(b":80"), text.removesuffix(b":443")
    return b"http://" + plain, b"https://" + secure


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        return found.ipv4_mapped
    return found
