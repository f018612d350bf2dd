"""Jobs: requests with ``Prefer: respond-async``, which are answered under ``/v1/jobs``.

A job is found only with the key of its request.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict, Field

from app.errors import Gone, NotReady, OpFailed, wrong
from app.execution.engine import Engine
from app.http.request import REQUEST, Defer, Request
from app.http.route import PageRoute, RawRoute, always
from app.jobs.line import JobLine
from app.kept.job_records import KEY_HEADER, MOST_KEY, JobRequest, State
from app.requests.answering import PIECE, Reply, send_reply
from app.routes.native.linearizations import REPLICA
from app.routes.protocol import document_reply
from app.telemetry.stage_times import SAMPLED, TRACEPARENT, Parent, parent_of

ALL, ONE = "/v1/jobs", "/v1/jobs/{id}"
# The headers of a request that its answer depends on.
KEPT = frozenset(
    b"content-type content-encoding accept accept-encoding inference-header-content-length user-agent "
    b"require-verdict".split()
)
# How long before the deadline of a request the wait ends.
MARGIN_S = 1.0
MOST_NAMES = 100

JobId = Annotated[str, Path(description="The id from the 202.")]
Wait = Annotated[float, Query(ge=0, le=3600, description="Return when a job has ended, or after so many seconds.")]


_ANY: Any = {200: {"description": "That answer.", "content": {"*/*": {"schema": {"type": "string"}}}}}


class JobProgress(BaseModel):
    """How much of a job is done."""

    model_config = ConfigDict(extra="forbid")

    done: int = Field(description="How many points, or steps of checks, are done.")
    total: int = Field(description="How many there are.")


class JobState(BaseModel):
    """A job."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="The name of the job.")
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    position: int | None = Field(None, description="The place in the line of a job that waits; 1: the next.")
    progress: JobProgress | None = Field(None, description="How much is done of a job that runs, if it has parts.")
    error: str | None = Field(None, description="Why the job has failed.")


class JobStates(BaseModel):
    """Several jobs."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[JobState]


def deferring(jobs: JobLine) -> Defer:
    """Return what makes a job of a request."""

    async def defer(request: Request) -> None:
        scope, body = request.scope, await request.read()
        query = scope.get("query_string", b"").decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        headers = tuple(sorted((name, value) for name, value in request.headers.items() if name in KEPT))
        if (parent := _parent(request)) is not None:
            headers += ((TRACEPARENT, parent.header()),)
        state = await jobs.post(request.key, JobRequest(target, headers, body), _idempotency_key(request))
        more = (
            (b"location", f"{ALL}/{state.id}".encode()),
            (b"preference-applied", b"respond-async"),
            (REPLICA, jobs.name.encode()),
        )
        await send_reply(document_reply(state.document())._replace(status=202, headers=more), request)

    return defer


def _parent(request: Request) -> Parent | None:
    """Return the parent of the span of a job: the span of the request, or its caller's if it is not traced."""
    times = request.times
    return parent_of(request.traceparent) if times is None else Parent(times.trace_id, times.span_id, SAMPLED)


def job_routes(engine: Engine, jobs: JobLine) -> APIRouter:
    """Return the routes of jobs."""
    router = APIRouter(tags=["jobs"], route_class=PageRoute)
    options: dict[str, Any] = {"response_model_exclude_none": True}

    @router.get(ALL, summary="Get the states of jobs", operation_id="jobs", response_model=JobStates, **options)
    async def several(  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        http_request: HttpRequest,
        id: Annotated[
            list[str], Query(max_length=MOST_NAMES, description="Ids of jobs; without any, the latest.")
        ] = [],  # noqa: B006 - the name of the parameter; FastAPI copies it
        wait: Wait = 0,
    ) -> Any:
        """Return the states of these jobs, in their order; with ``wait``, once one of them has ended."""
        request: Request = http_request.scope[REQUEST]
        if not id:
            found = await jobs.call(lambda store: store.latest(request.key))
        else:
            found = await _states(request, jobs, id, wait)
        return {"jobs": [state.document() for state in found]}

    @router.get(ONE, summary="Get the state of a job", operation_id="job", response_model=JobState, **options)
    async def one(id: JobId, http_request: HttpRequest, wait: Wait = 0) -> Any:
        """Return the state of a job; with ``wait``, once it has ended."""
        [state] = await _states(http_request.scope[REQUEST], jobs, [id], wait)
        return state.document()

    @router.delete(ONE, summary="End a job, or free its answer", operation_id="delete_job", status_code=204)
    async def delete(id: JobId, http_request: HttpRequest) -> Response:
        """End a job that waits or runs, with its process; free the answer of one that has ended."""
        await jobs.cancel(id, http_request.scope[REQUEST].key)
        return Response(status_code=204)

    async def result(request: Request) -> None:
        await _send_answer(jobs, request)

    answer = RawRoute(
        f"{ONE}/result",
        always(result, engine.counters("", "jobs")),
        methods=["GET"],
        summary="Get the answer of a job",
        description="The answer to the request of the job, with its status and in its format.",
        operation_id="job_result",
        response_class=Response,
        responses=_ANY,
        parameters={"id": str},
        tags=["jobs"],
    )

    for route in router.routes:
        if isinstance(route, PageRoute) and route.path == ONE:
            route.others = ("DELETE",) if route.methods == {"GET"} else ("GET", "HEAD")
    router.routes.append(answer)
    return router


async def _states(request: Request, jobs: JobLine, names: list[str], wait_s: float) -> list[State]:
    request.deadline.start_work()
    return await jobs.states(names, request.key, max(0.0, min(wait_s, request.deadline.allowed_s - MARGIN_S)))


async def _send_answer(jobs: JobLine, request: Request) -> None:
    name = request.scope["path_params"]["id"]
    state, answer = await jobs.call(lambda store: store.answer(name, request.key))
    if answer is None:
        if not state.has_ended:
            raise NotReady(f"job {name} has no answer yet, because it is {state.state}: GET {ALL}/{name}?wait=30 waits")
        if state.state == "cancelled":
            raise Gone(f"job {name} was cancelled, and has no answer")
        raise OpFailed(f"job {name} has failed: {state.error}")
    media_type, headers = "application/octet-stream", list[tuple[bytes, bytes]]()
    for header, value in answer.headers:
        if header == b"content-type":
            media_type = value.decode("latin-1")
        else:
            headers.append((header, value))
    body = memoryview(answer.body)
    pieces = [body[start : start + PIECE] for start in range(0, len(body), PIECE)]
    await send_reply(Reply(media_type, pieces, tuple(headers), status=answer.status), request)


def _idempotency_key(request: Request) -> str:
    key = request.headers.get(KEY_HEADER.lower().encode(), b"").decode("latin-1")
    if len(key) > MOST_KEY or not key.isascii() or not (key.isprintable() or not key):
        expected = f"at most {MOST_KEY} printable characters of ASCII"
        raise wrong(("header", KEY_HEADER), "invalid key", expected=expected, got=f"{len(key)} characters")
    return key
