"""Authorization of requests, by the token that they carry and the groups that are open."""

from __future__ import annotations

from collections.abc import Callable, Collection

from workbench.errors import AccessDenied, TokenRequired

Carries = Callable[[str], bool]  # whether a request carries a token

_CURE = (
    "this request needs a token: send the header 'Authorization: Bearer TOKEN'; "
    "'workbench token' prints it"
)


class Auth:
    """Decides by the server's *token*, ``""`` for none, and the *closed* groups of requests.

    All wires ask it, so that none lets in what another refuses.
    """

    def __init__(self, token: str, closed: Collection[str]) -> None:
        self._token = token
        self._closed = closed

    def authorize(self, carries: Carries, group: str = "") -> None:
        """Let a request of *group* in. Raises ``TokenRequired``, ``AccessDenied``.

        To be called before anything is looked up: a stranger is not to learn which models there
        are.
        """
        if self._token and not carries(self._token):
            raise TokenRequired(_CURE)
        if group in self._closed:
            raise closed(group)

    def closes(self, group: str) -> bool:
        return group in self._closed


def closed(group: str) -> AccessDenied:
    """The error for a request of *group*, which the settings close."""
    return AccessDenied(f"{group} is closed: the server was started with restrict={group}")


def token_of(authorization: bytes) -> bytes:
    """The token of an Authorization header: RFC 6750's, Jupyter's, or AWS' access key."""
    scheme, _, rest = authorization.partition(b" ")
    if scheme.lower() in (b"bearer", b"token"):
        return rest.strip()
    if scheme == b"AWS4-HMAC-SHA256":  # boto3 signs all it sends, and says with which key
        return rest.partition(b"Credential=")[2].partition(b"/")[0]
    return b""
