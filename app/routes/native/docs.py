"""GET /docs, the documentation of every path for browsers, the OpenAPI document that it shows, and /llms.txt."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import fastapi_offline
from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from app.http.route import PageRoute

DOCUMENT = "/openapi.json"
# Where the files of Swagger UI are served.
ASSETS = "/static-offline-docs"
INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


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
