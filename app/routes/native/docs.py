"""GET /docs: the documentation of every path, for browsers."""

import base64
import hashlib
import re

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

# Where FastAPIOffline serves its copy of Swagger UI.
ASSETS = "/static-offline-docs"
INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def docs_page(app: FastAPI) -> APIRouter:
    """Return the route of the page, which may only load files of this service and run its own script."""
    router = APIRouter()
    page = get_swagger_ui_html(
        openapi_url=str(app.openapi_url),
        title=app.title,
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon.png",
        swagger_ui_parameters=app.swagger_ui_parameters,
    )
    page.headers["Content-Security-Policy"] = policy(bytes(page.body))

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        return page

    return router


def policy(page: bytes) -> str:
    """Return the content security policy of a page: its inline scripts are allowed by their hashes.

    Swagger UI sets styles inline, and has its icons in ``data:`` URLs.
    """
    digests = [base64.b64encode(hashlib.sha256(script).digest()) for script in INLINE_SCRIPT.findall(page)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest.decode()}'" for digest in digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
