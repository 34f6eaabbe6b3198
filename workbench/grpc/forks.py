"""Imports grpc without its handlers of forks, unless the user asks for them.

They do nothing while a server runs, because its threads are inside of grpc; but at each fork, such
as that of ``!ls`` in a notebook, they print a line about that.
"""

from __future__ import annotations

import os

_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"  # which grpc reads once, when it is imported

if _VARIABLE in os.environ:
    import grpc
else:
    os.environ[_VARIABLE] = "0"
    try:
        import grpc  # noqa: F401
    finally:
        del os.environ[_VARIABLE]  # processes that are started later shall not get it
