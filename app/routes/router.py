"""The router: one table from the path of a request to its route, for every enabled API."""

from collections.abc import Callable, Mapping, Sequence

from starlette.types import ASGIApp

from app.execution.engine import Engine
from app.http.request import Route
from app.requests.plans import Plans
from app.routes.native.paths import routes as native_routes
from app.routes.openinference.paths import routes as openinference_routes
from app.routes.protocol import Routes
from app.routes.tesseract.paths import routes as tesseract_routes
from app.routes.umbridge.paths import routes as umbridge_routes
from app.settings import ProtocolName

PROTOCOLS: Mapping[ProtocolName, Callable[[Engine, Plans], Routes]] = {
    "umbridge": umbridge_routes,
    "tesseract": tesseract_routes,
    "openinference": openinference_routes,
}


class Router:
    """The routes of the native API and of the enabled protocols, which share one cache of plans."""

    def __init__(self, engine: Engine, plans: Plans, pages: ASGIApp, protocols: Sequence[ProtocolName]) -> None:
        """Collect the routes; ``pages`` serves FastAPI's pages and every path that belongs to no API."""
        self._apis = [PROTOCOLS[name](engine, plans) for name in protocols]
        self._apis.append(native_routes(engine, plans, pages))
        self.by_path = {path: route for api in reversed(self._apis) for path, route in api.by_path.items()}

    def other(self, path: str) -> Route:
        """Return the route of an unknown path, from the API that the path belongs to."""
        return next(route for api in self._apis if (route := api.other(path)))
