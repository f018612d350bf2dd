"""GET / and /explore: the pages that show an op, its derivatives and its verdict, and their files.

The pages are static; all that they show comes from the public API. They may only load files of this service.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

import app
from app.errors import NotFound
from app.http.route import PageRoute
from app.requests.negotiation import JSON, accepted

FOLDER = Path(app.__file__).with_name("explorer")
PAGE = "explorer.html"
LINKS = {
    "explorer": "/explore",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "ops": "/v1/ops",
    "health": "/health/ready",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}


@dataclass(frozen=True)
class File:
    """A file of the explorer, its bytes and the same compressed, with the type and the tag of its content."""

    content: bytes
    compressed: bytes
    media_type: str
    tag: str

    @classmethod
    def read(cls, path: Path) -> "File":
        """Read a file."""
        content, media_type = path.read_bytes(), mimetypes.guess_type(path.name)[0] or "text/plain"
        media_type = {"application/javascript": "text/javascript"}.get(media_type, media_type)
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        return cls(content, gzip.compress(content, mtime=0), media_type, tag)

    def response(self, request: Request) -> Response:
        """Return the response to a request, without the content if the client has it."""
        headers = {**HEADERS, "ETag": self.tag}
        if self.media_type == "text/html":
            headers |= {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
        known = request.headers.get("if-none-match", "").replace("W/", "")
        if self.tag in map(str.strip, known.split(",")):
            return Response(status_code=304, headers=headers)
        encodings = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
        if "gzip" in encodings:
            headers["Content-Encoding"] = "gzip"
        content = self.compressed if "gzip" in encodings else self.content
        return Response(content, headers=headers, media_type=self.media_type)


@cache
def files() -> dict[str, File]:
    """Return the files of the explorer, by their path below its folder."""
    # The types of TypeScript are for those who change the pages.
    found = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".ts")
    return {str(path.relative_to(FOLDER)): File.read(path) for path in found}


def explorer() -> APIRouter:
    """Return the routes of the pages and of their files."""
    router = APIRouter(tags=["explorer"], route_class=PageRoute, include_in_schema=False)

    @router.get("/")
    async def home(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Send a browser to the explorer, and the links of the service to others."""
        accept = request.headers.get("accept", "").encode("latin-1")
        if accepted({b"accept": accept}, (JSON, "text/html")) == JSON:
            return JSONResponse(LINKS, headers={"Vary": "Accept"})
        return RedirectResponse(LINKS["explorer"], status_code=302, headers={"Vary": "Accept"})

    async def page(request: Request) -> Response:
        """Return the page of the list or of one op, which finds its op in its address."""
        return files()[PAGE].response(request)

    for path in ("/explore", "/explore/", "/explore/{op}", "/explore/{op}/"):
        router.get(path)(page)

    @router.get("/explore/static/{path:path}")
    async def static(request: Request, path: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Return a file of the pages."""
        if (file := files().get(path)) is None:
            raise NotFound(f"unknown path {request.url.path}; GET /docs lists the paths")
        return file.response(request)

    return router
