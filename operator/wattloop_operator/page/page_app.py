"""The routes of the page, and of the same content as JSON."""

import hashlib
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as AnyHttpException
from starlette.types import ASGIApp, Receive, Scope, Send

from wattloop.errors import InputError, WattloopError
from wattloop.printable import printable
from wattloop_operator.domain.names import JobKey
from wattloop_operator.history.lines import write_lines
from wattloop_operator.history.month_usage import MonthUsage, month_begin, month_text, write_focus
from wattloop_operator.page.change_stream import ChangeStreams, EventStream, ViewerPage, viewer_page_of, with_page
from wattloop_operator.page.cluster_view import cluster_view
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.job_view import conditions_view, job_view, jobs_view
from wattloop_operator.page.month_view import month_view
from wattloop_operator.page.rendering import rendered, rendered_error
from wattloop_operator.page.request_guard import SVG_POLICY, RequestGuard
from wattloop_operator.page.svg_plots import Plot, SvgPlots, ThemeName
from wattloop_operator.page.views import ClusterView, ConditionsView, JobsView, JobView, MonthView, View


async def _source(request: Request) -> JobSource:
    # Asynchronous, because FastAPI would run a function in a thread of its own.
    return viewer_page_of(request).source


def _fresh_source(request: Request) -> JobSource:
    source = viewer_page_of(request).source
    source.refresh()
    return source


Source = Annotated[JobSource, Depends(_source)]
FreshSource = Annotated[JobSource, Depends(_fresh_source)]
Text = Annotated[str, Query(max_length=253)]
Name = Annotated[str, Query(min_length=1, max_length=253)]
Month = Annotated[str, Query(pattern="^[1-9][0-9]{3}-(0[1-9]|1[0-2])$", max_length=7)]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
# A plot's address has the version of what it shows.
KEPT_BY_BROWSERS = "private, max-age=86400, immutable"
STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
NO_JOB = "There is no such job"
NO_JOB_STEP = "It may have been deleted; the list of jobs has those that there are."
NO_DATABASE_STEP = "The page reads it again by itself."

SomeView = TypeVar("SomeView", bound=View)
Value = TypeVar("Value")


class Columns(StrEnum):
    """The columns of a month's CSV: Wattloop's own, or those of FinOps FOCUS."""

    WATTLOOP = "wattloop"
    FOCUS = "focus"


class ErrorBody(BaseModel):
    """The body of an error response of `/api`."""

    detail: str = Field(description="What is wrong, and what to do.")


ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorBody, "description": "There is no job of this name."},
    503: {"model": ErrorBody, "description": "The jobs, or this one, cannot be read now."},
}


def create_page(source: JobSource, streams: ChangeStreams, hosts: Iterable[str]) -> RequestGuard:
    """The ASGI application of the page of one source, without authentication.

    Args:
        source: The jobs.
        streams: Tells open pages of changes.
        hosts: Names of the server; requests to others are refused.
    """
    return RequestGuard(of_source(page_routes(), ViewerPage(source, streams)), hosts)


def of_source(app: ASGIApp, page: ViewerPage) -> ASGIApp:
    """The routes with what all their viewers see."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app(with_page(scope, page), receive, send)

    return call


def page_routes() -> FastAPI:
    """The routes, whose requests have a `ViewerPage`; see `with_page`."""
    app = FastAPI(
        title="Wattloop live page",
        version="v1",
        description="What the page shows, as JSON, read-only: of wattloop ui without authentication, for this machine "
        "alone; of wattloop ui-server with a token of the cluster as the bearer token.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    _add_json(app)
    _add_html(app)
    _add_other(app)
    _add_static(app)
    _add_errors(app)
    return app


def openapi_text() -> str:
    """The OpenAPI description (docs/reference/live-page-api.json)."""
    return json.dumps(page_routes().openapi(), indent=2, ensure_ascii=False) + "\n"


def _add_json(app: FastAPI) -> None:
    @app.get("/api/jobs", summary="List the jobs", responses={503: ERRORS[503]})
    def jobs(source: FreshSource, search: Text = "", page: PageNumber = 1) -> JobsView:
        """One page of the jobs whose namespace and name contain the text."""
        return _view(source, jobs_view(source, search, page))

    @app.get("/api/job", summary="Show a job", responses=ERRORS)
    def job(source: FreshSource, namespace: Name, name: Name, page: PageNumber = 1) -> JobView:
        """Its decisions, beliefs, running attempts, and one page of the attempts that ended."""
        return _view(source, job_view(source, JobKey(namespace, name), page))

    @app.get("/api/conditions", summary="Show why a job does not run", responses=ERRORS)
    def conditions(source: FreshSource, namespace: Name, name: Name) -> ConditionsView:
        """The conditions of the job and of its running attempts, and its latest failures."""
        return _view(source, conditions_view(source, JobKey(namespace, name)))

    @app.get("/api/cluster", summary="Show the GPUs", responses={503: ERRORS[503]})
    def cluster(source: FreshSource, page: PageNumber = 1) -> ClusterView:
        """Those of running attempts, then all others: their power, their limits, and who holds them."""
        return _view(source, cluster_view(source, datetime.now(UTC), page))

    @app.get("/api/month", summary="Show the usage of a month", responses={503: ERRORS[503]})
    def month(source: FreshSource, month: Month | None = None, page: PageNumber = 1) -> MonthView:
        """Energy, GPU time, price and carbon by team and job; without a month, of the latest one with attempts."""
        return _view(source, month_view(source, month, page))


def _add_html(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def jobs_page(source: Source, search: Text = "", page: PageNumber = 1) -> HTMLResponse:
        return _html(source, "jobs.html", jobs_view(source, search, page))

    @app.get("/job", include_in_schema=False)
    def job_page(source: Source, namespace: Name, name: Name, page: PageNumber = 1) -> HTMLResponse:
        return _html(source, "job.html", job_view(source, JobKey(namespace, name), page))

    @app.get("/conditions", include_in_schema=False)
    def conditions_page(source: Source, namespace: Name, name: Name) -> HTMLResponse:
        return _html(source, "conditions.html", conditions_view(source, JobKey(namespace, name)))

    @app.get("/cluster", include_in_schema=False)
    def cluster_page(source: Source, page: PageNumber = 1) -> HTMLResponse:
        return _html(source, "cluster.html", cluster_view(source, datetime.now(UTC), page))

    @app.get("/month", include_in_schema=False)
    def month_page(source: Source, month: Month | None = None, page: PageNumber = 1) -> HTMLResponse:
        return _html(source, "month.html", month_view(source, month, page))

    @app.get("/month.csv", include_in_schema=False)
    def month_csv(source: FreshSource, month: Month, columns: Columns = Columns.WATTLOOP) -> Response:
        begin, text = month_begin(month), io.StringIO()
        usages = source.month(begin)
        if partial := source.month_partial():
            # A sheet has no place to say that it is a part.
            raise HTTPException(404, partial)
        if columns is Columns.FOCUS:
            write_focus(text, usages, begin)
        else:
            write_lines(text, MonthUsage, usages, "csv")
        headers = {"Content-Disposition": f'attachment; filename="{columns.value}-{month_text(begin)}.csv"'}
        return Response(text.getvalue(), media_type="text/csv", headers=headers)


def _view(source: JobSource, view: SomeView | None) -> SomeView:
    found = _found(view)
    found.unreadable_rows = list(source.unreadable_rows)
    return found


def _html(source: JobSource, template: str, view: View | None) -> HTMLResponse:
    return HTMLResponse(rendered(template, _view(source, view), source.outdated_seconds()))


def _add_other(app: FastAPI) -> None:
    plots = SvgPlots()

    @app.get("/plots/{plot}.svg", include_in_schema=False)
    def plot_svg(
        source: Source, plot: Plot, namespace: Name, name: Name, theme: ThemeName = ThemeName.LIGHT
    ) -> Response:
        svg = _found(plots.svg(source, plot, JobKey(namespace, name), theme))
        headers = {"Content-Security-Policy": SVG_POLICY}
        if not source.viewer:
            # Who has signed out may not see it again.
            headers["Cache-Control"] = KEPT_BY_BROWSERS
        return Response(svg, media_type="image/svg+xml", headers=headers)

    @app.get("/events", include_in_schema=False)
    async def events(request: Request) -> Response:
        page = viewer_page_of(request)
        return EventStream(page.streams.events(page.ending))

    @app.get("/healthz", include_in_schema=False)
    def healthz(source: Source) -> Response:
        source.version()
        return Response(status_code=204)


def _add_static(app: FastAPI) -> None:
    # In memory: a browser that goes away leaves no file open.
    files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in MEDIA_TYPES}
    tags = {name: f'"{hashlib.sha256(content).hexdigest()[:16]}"' for name, content in files.items()}

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404, "There is no such file")
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        kept = {"ETag": tags[name], "Cache-Control": "private, no-cache"}
        if tags[name] in known:
            return Response(status_code=304, headers=kept)
        return Response(files[name], media_type=MEDIA_TYPES[Path(name).suffix], headers=kept)


def _add_errors(app: FastAPI) -> None:
    async def of_source(request: Request, error: Exception) -> Response:
        title = "This cannot be read" if isinstance(error, InputError) else "The jobs cannot be read"
        return _problem(request, 503, title, printable(str(error)), NO_DATABASE_STEP)

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, AnyHttpException)
        step = NO_JOB_STEP if error.detail == NO_JOB else ""
        return _problem(request, error.status_code, error.detail, "", step)

    async def of_query(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        text = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
        return _problem(request, 422, "The address is not valid", printable(text), "")

    app.add_exception_handler(WattloopError, of_source)
    app.add_exception_handler(AnyHttpException, of_http)
    app.add_exception_handler(RequestValidationError, of_query)


def _problem(request: Request, status: int, title: str, message: str, next_step: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": "; ".join(filter(None, (title, message)))}, status)
    return HTMLResponse(rendered_error(title, message, next_step), status)


def _found(value: Value | None) -> Value:
    if value is None:
        raise HTTPException(404, NO_JOB)
    return value
