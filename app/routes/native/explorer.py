"""GET / and /explore: the pages that show an op, its derivatives and its verdict, and their files.

The pages are static; all that they show comes from the public API. They may only load files of this service.
"""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

import app
from app.errors import NotFound
from app.http.route import PageRoute
from app.requests.answers import JSON, accepted
from app.routes.native.docs import script_sources

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
    "default-src 'none'; script-src {}; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# It is a part of the page, because it sees to the other files of the page.
LOADING = "js/loading.js"
# The path of the files in the page; they are served below it under their version, so that a browser asks for each once.
STATIC = "/explore/static/"
KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}
HEADERS = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}


@dataclass(frozen=True)
class File:
    """A file of the explorer, its bytes and the same compressed, with the type and the tag of its content."""

    content: bytes
    compressed: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> "File":
        """Return the file of this name."""
        media_type = mimetypes.guess_type(name)[0] or "text/plain"
        media_type = {"application/javascript": "text/javascript"}.get(media_type, media_type)
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        return cls(content, gzip.compress(content, mtime=0), media_type, tag)

    def response(self, request: Request, more: Mapping[str, str] | None = None) -> Response:
        """Return the response to a request, with ``more`` headers, and without the content if the client has it."""
        headers = {**HEADERS, "ETag": self.tag, **(more or {})}
        if self.media_type == "text/html":
            policy = POLICY.format(script_sources(self.content))
            headers |= {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        known = request.headers.get("if-none-match", "").replace("W/", "")
        if self.tag in map(str.strip, known.split(",")):
            return Response(status_code=304, headers=headers)
        encodings = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
        if "gzip" in encodings:
            headers["Content-Encoding"] = "gzip"
        content = self.compressed if "gzip" in encodings else self.content
        return Response(content, headers=headers, media_type=self.media_type)


@dataclass(frozen=True)
class Files:
    """The files of the explorer, by their path below its folder, and the version of all of them."""

    by_path: Mapping[str, File]
    version: str

    @classmethod
    def read(cls) -> "Files":
        """Read the files, without the types of TypeScript, which are for those who change the pages."""
        paths = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".ts")
        contents = {str(path.relative_to(FOLDER)): path.read_bytes() for path in paths}
        version = hashlib.sha256(b"".join(contents.values())).hexdigest()[:16]
        link, script = f'<script src="{STATIC}{LOADING}"></script>'.encode(), contents[LOADING]
        contents[PAGE] = contents[PAGE].replace(link, b"<script>" + script + b"</script>")
        contents[PAGE] = contents[PAGE].replace(STATIC.encode(), f"{STATIC}{version}/".encode())
        return cls({path: File.of(path, content) for path, content in contents.items()}, version)


files = cache(Files.read)


def explorer() -> APIRouter:
    """Return the routes of the pages and of their files."""
    router, known = APIRouter(tags=["explorer"], route_class=PageRoute, include_in_schema=False), files()

    @router.get("/")
    async def home(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Send a browser to the explorer, and the links of the service to others."""
        accept = request.headers.get("accept", "").encode("latin-1")
        if accepted({b"accept": accept}, (JSON, "text/html")) == JSON:
            return JSONResponse(LINKS, headers={"Vary": "Accept"})
        return RedirectResponse(LINKS["explorer"], status_code=302, headers={"Vary": "Accept"})

    async def page(request: Request) -> Response:
        """Return the page of the list or of one op, which finds its op in its address."""
        return known.by_path[PAGE].response(request)

    for path in ("/explore", "/explore/", "/explore/{op}", "/explore/{op}/"):
        router.get(path)(page)

    @router.get(STATIC + "{version}/{path:path}")
    async def static(request: Request, version: str, path: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        """Return a file of the pages; a page of another version gets it too, but must not keep it."""
        if (file := known.by_path.get(path)) is None:
            raise NotFound(f"unknown path {request.url.path}; GET /docs lists the paths")
        return file.response(request, KEPT if version == known.version else None)

    return router
