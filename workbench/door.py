"""Which requests are let in by the token that they carry: the server's, or that of their group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench.errors import GroupClosed, TokenRequired
from workbench.tokens import OFF

Carries = Callable[[str], bool]  # whether a request carries a token

_CURE = (
    "this request needs a token: send the header 'Authorization: Bearer TOKEN'; "
    "'workbench token' prints the server's (a group in 'restrict' may have its own)"
)


class Door:
    """Decides by the server's *token*, ``""`` for none, and by *groups*, the setting ``restrict``.

    All wires ask it, so that none lets in what another refuses.
    """

    def __init__(self, token: str, groups: Mapping[str, str]) -> None:
        self._token = token
        self._groups = groups
        self._tokens = {token, *groups.values()} - {"", OFF}

    def authorize(self, carries: Carries, group: str = "") -> None:
        """Let a request of *group* in; it may be closed, or have a token of its own.

        Raises ``TokenRequired``, ``GroupClosed``.
        """
        wanted = self._groups.get(group, self._token)
        if wanted == OFF:
            raise GroupClosed(
                f"{group} is closed: the server was started with restrict={group}=off"
            )
        if wanted and not carries(wanted):
            raise TokenRequired(_CURE)

    def check_known(self, carries: Carries) -> None:
        """Stop who has neither the server's token nor that of a group. Raises ``TokenRequired``.

        Before anything is looked up: a stranger is not to learn which models there are.
        """
        if self._token and not any(map(carries, self._tokens)):
            raise TokenRequired(_CURE)

    def opens(self, group: str, carries: Carries) -> bool:
        """Whether a request may do what *group* is."""
        wanted = self._groups.get(group)
        return wanted is None or (wanted != OFF and carries(wanted))

    def restricts(self, group: str) -> bool:
        """Whether *group* is closed, or has a token of its own."""
        return group in self._groups


def token_of(authorization: bytes) -> bytes:
    """The token of an Authorization header: RFC 6750's, Jupyter's, or AWS' access key."""
    scheme, _, rest = authorization.partition(b" ")
    if scheme.lower() in (b"bearer", b"token"):
        return rest.strip()
    if scheme == b"AWS4-HMAC-SHA256":  # boto3 signs all it sends, and says with which key
        return rest.partition(b"Credential=")[2].partition(b"/")[0]
    return b""
