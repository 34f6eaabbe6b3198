"""Options of several commands, and lines that several print."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from workbench.errors import UsageError
from workbench.running import running_servers, why_unlisted
from workbench.views.text import event_row

path_option = partial(click.option, type=click.Path(path_type=Path))
url_option = click.option("--url", show_default="the only one on this machine", help="the server")
token_option = click.option(
    "--token", show_default="that of your own server", help="what the server asks for"
)


def event_line(entry: Any) -> str:
    """An event of the log in one line."""
    at, kind, text = event_row(entry)
    return f"{at}  {kind:<9} {text}"


def only_url() -> str:
    """The address of the only server. Raises ``UsageError``."""
    urls = [server.url for server in running_servers()]
    if not urls and (why := why_unlisted()):
        raise UsageError(f"{why}: give the address of one with --url")
    if not urls:
        raise UsageError(
            "no server of yours runs on this machine: workbench serve FOLDER, or --url of another"
        )
    if len(urls) > 1:
        raise UsageError(f"{len(urls)} servers run: choose one with --url: {', '.join(urls)}")
    return urls[0]
