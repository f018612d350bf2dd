"""GET /health/live and /health/ready: the liveness and readiness probes."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import PageRoute, RawRoute, always
from app.runtime.devices import TENSORFLOW_VERSION
from app.runtime.doctor import Part
from app.runtime.traces import trace_counts

# In the documentation, a field with a default is one that the response may lack.
ALL_REQUIRED = ConfigDict(json_schema_serialization_defaults_required=True)


class Live(BaseModel):
    """The event loop responds."""

    model_config = ALL_REQUIRED

    status: Literal["live"] = "live"


LIVE_BODY = Live().model_dump_json().encode()
LIVE_HEADERS = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(LIVE_BODY)))


class UnavailableOp(BaseModel):
    """An op that is not served."""

    op: str
    reason: str


class Ready(BaseModel):
    """The service accepts requests."""

    model_config = ALL_REQUIRED

    status: Literal["ready"] = "ready"
    tensorflow: str = Field(description="TensorFlow's version.")
    devices: list[str]
    default_device: str
    machine: list[Part] = Field(description="The parts examined at startup, as `pullback doctor` lists them.")
    ops: int = Field(description="The number of ops served.")
    unavailable: list[UnavailableOp] = Field(description="Ops that failed to load, and why.")
    traces: int = Field(description="Traced functions created so far; the process keeps a limited number of them.")
    compiled: int = Field(description="How many of them XLA has compiled.")


def health(engine: Engine, machine: list[Part]) -> APIRouter:
    """Return the health routes."""
    router = APIRouter(tags=["health"], route_class=PageRoute)
    unavailable = [UnavailableOp(op=op.name, reason=op.reason) for op in engine.registry.unavailable]

    router.routes.append(
        RawRoute(
            "/health/live",
            always(_live, engine.counters("", "health")),
            name="live",
            tags=["health"],
            summary="Check that the service responds",
            description="Respond at once, even while the service computes.",
            response_model=Live,
        )
    )

    @router.get("/health/ready", summary="Check that the service accepts requests")
    async def ready() -> Ready:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Respond 200 if the service accepts requests, 503 while it drains or is stuck in a computation."""
        engine.need_ready()
        traces, compiled = trace_counts()
        return Ready(
            tensorflow=TENSORFLOW_VERSION,
            devices=list(engine.devices),
            default_device=engine.default_device,
            machine=machine,
            ops=len(engine.registry.ops),
            unavailable=unavailable,
            traces=traces,
            compiled=compiled,
        )

    return router


async def _live(request: Request) -> None:
    """Answer a probe, which must not wait long behind others: a page of FastAPI would take several times as long."""
    await request.respond(200, LIVE_HEADERS, LIVE_BODY)
