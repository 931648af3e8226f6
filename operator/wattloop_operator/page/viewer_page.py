"""What one viewer of the page sees: the jobs of a source, and the events that tell of their changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import Scope

from wattloop_operator.page.change_stream import ChangeStreams
from wattloop_operator.page.job_source import JobSource

STATE = "viewer_page"


@dataclass(frozen=True)
class ViewerPage:
    """What a viewer sees.

    Attributes:
        source: The jobs.
        streams: Tells the viewer's open pages of changes.
        ending: Says why the viewer may see it no longer, as his token has expired; empty while he may.
    """

    source: JobSource
    streams: ChangeStreams
    ending: Callable[[], str] = lambda: ""


def with_page(scope: Scope, page: ViewerPage) -> Scope:
    """The scope of a request of a viewer."""
    return {**scope, "state": {**scope.get("state", {}), STATE: page}}


def viewer_page_of(request: HTTPConnection) -> ViewerPage:
    """What the viewer of a request sees."""
    page = request.scope["state"][STATE]
    assert isinstance(page, ViewerPage)
    return page
