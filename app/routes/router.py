"""The protocols that there are, and what the chain around all requests needs to know of those that are served."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from app.execution.engine import Engine
from app.http.problems import Dialect, problem
from app.requests.plans import Plans
from app.routes.openinference.protocol import PROTOCOL as OPENINFERENCE
from app.routes.protocol import Labels, Protocol
from app.routes.tesseract.protocol import PROTOCOL as TESSERACT
from app.routes.umbridge.protocol import PROTOCOL as UMBRIDGE
from app.settings import ProtocolName
from ops import Op

PROTOCOLS: Mapping[ProtocolName, Protocol] = {one.name: one for one in (UMBRIDGE, TESSERACT, OPENINFERENCE)}


def protocols(fallback: ASGIApp, engine: Engine, plans: Plans, names: Sequence[ProtocolName]) -> ASGIApp:
    """Return an app that answers in these protocols on their paths, and leaves every other path to ``fallback``."""
    served = [(PROTOCOLS[name].has, PROTOCOLS[name].serve(engine, plans)) for name in names]

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"] if scope["type"] == "http" else ""
        app = next((app for has, app in served if has(path)), fallback)
        await app(scope, receive, send)

    return dispatched


def dialect_of_path(names: Sequence[ProtocolName]) -> Callable[[str], Dialect]:
    """Return what finds, for a path, how errors are told there."""
    served = [(PROTOCOLS[name].has, PROTOCOLS[name].dialect) for name in names]
    return lambda path: next((dialect for has, dialect in served if has(path)), problem)


def unpacking_paths(names: Sequence[ProtocolName]) -> Callable[[str], bool]:
    """Return what tells whether who answers on a path takes bodies apart."""
    served = [PROTOCOLS[name].has for name in names if PROTOCOLS[name].unpacks]
    return lambda path: any(has(path) for has in served)


def counted_paths(names: Sequence[ProtocolName], ops: Iterable[Op]) -> dict[str, Labels]:
    """Return the paths of these protocols that are known, with what requests there are counted as."""
    served = list(ops)
    return {path: labels for name in names for path, labels in PROTOCOLS[name].counted(served).items()}
