"""GET /docs, the documentation of every path for browsers, the OpenAPI document that it shows, and /llms.txt."""

import asyncio
import base64
import contextlib
import hashlib
import html
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import fastapi_offline
from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from app.errors import NotAcceptable, NotFound, PullbackError
from app.http.problems import RenderedError
from app.http.request import REQUEST, Request
from app.http.route import PageRoute, admit
from app.requests.answers import JSON, accepted

DOCUMENT = "/openapi.json"
# Where the files of Swagger UI are served.
ASSETS = "/static-offline-docs"
INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
HTML = "text/html"
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title} - Pullback</title>
</head>
<body>
<h1>{title}</h1>
<p>{detail}</p>
<ul>
<li><a href="/explore">/explore</a>: the ops, with plots and verdicts</li>
<li><a href="/docs">/docs</a>: all paths, with their requests and answers</li>
<li><a href="/">/</a>: the start</li>
</ul>
</body>
</html>"""


def docs(app: FastAPI) -> APIRouter:
    """Return the routes of the document, and of its page, which may only load files of this service."""
    router = APIRouter(tags=["docs"], route_class=PageRoute, include_in_schema=False)
    page = get_swagger_ui_html(
        openapi_url=DOCUMENT,
        title=app.title,
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon.png",
        # The groups of paths, without the schemas below them.
        swagger_ui_parameters={"docExpansion": "none", "defaultModelsExpandDepth": -1},
    )
    page.headers["Content-Security-Policy"] = policy(bytes(page.body))
    for path in ("/docs", "/docs/"):
        router.get(path)(_always(lambda: page))

    @router.get(DOCUMENT)
    async def document() -> Response:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        # The document is made once, which takes a second or two.
        return await asyncio.to_thread(lambda: JSONResponse(app.openapi()))

    index = Path(__file__).with_name("llms.txt").read_text(encoding="utf-8")
    router.get("/llms.txt")(_always(lambda: PlainTextResponse(index)))

    # Its own copy of the scripts: servers often have no access to the internet.
    router.mount(ASSETS, StaticFiles(directory=Path(fastapi_offline.__file__).with_name("static")))
    return router


def _always(response: Callable[[], Response]) -> Callable[[], Awaitable[Response]]:
    async def endpoint() -> Response:
        return response()

    return endpoint


def policy(page: bytes) -> str:
    """Return the content security policy of the page. Swagger UI sets styles inline, and has its icons in ``data:``."""
    scripts = script_sources(page)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def script_sources(page: bytes) -> str:
    """Return what a page may run: the files of this service, and its own inline scripts, by their hashes."""
    digests = [base64.b64encode(hashlib.sha256(script).digest()) for script in INLINE_SCRIPT.findall(page)]
    return " ".join(["'self'", *(f"'sha256-{digest.decode()}'" for digest in digests)])


async def unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Raise the ``PullbackError`` for a path without a route, or for its body: the ``default`` of a router."""
    del receive, send
    request: Request = scope[REQUEST]
    admit(request)
    request.is_unread = False  # the server discards the body
    headers = {"Vary": "Accept"}
    with contextlib.suppress(NotAcceptable):  # that would hide that the path is unknown
        if request.method in ("GET", "HEAD") and accepted(request.headers, (JSON, HTML)) == HTML:
            request.dialect = page
            headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
    raise NotFound(f"unknown path {scope['path']}; GET /docs lists the paths", headers=headers)


def page(error: PullbackError, instance: str) -> RenderedError:
    """Render an error as a page."""
    document = error.document(instance)
    texts = {name: html.escape(document[name]) for name in ("title", "detail")}
    return RenderedError(error.status, f"{HTML}; charset=utf-8", PAGE.format(**texts))
