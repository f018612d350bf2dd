"""UM-Bridge 1.0, at the root."""

from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from app.engine import Engine
from app.errors import NotFound, PullbackError
from app.problems import Told
from app.protocols.protocol import Labels, Protocol, document_reply, need_method
from app.routes.answering import send_reply
from app.routes.plans import Plans
from ops import Op

INFO = "/Info"


def _serve(engine: Engine, plans: Plans) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        need_method(scope, "GET")
        await send_reply(document_reply({"protocolVersion": 1.0, "models": list(engine.registry.ops)}), scope, send)

    return served


def _dialect(error: PullbackError, instance: str) -> Told:
    kind = "ModelNotFound" if isinstance(error, NotFound) else "InvalidInput"
    return Told(400, "application/json", {"error": {"type": kind, "message": error.sentence()}})


def _counted(ops: Iterable[Op]) -> Mapping[str, Labels]:
    return {INFO: ("", "catalogue")}


PROTOCOL = Protocol("umbridge", lambda path: path == INFO, _serve, _dialect, _counted)
