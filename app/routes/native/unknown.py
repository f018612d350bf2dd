"""The answer on a path that no route has: a page for a browser, a problem document for others."""

import contextlib
import html

from starlette.types import Receive, Scope, Send

from app.errors import NotAcceptable, NotFound, PullbackError
from app.http.problems import RenderedError
from app.http.request import REQUEST, Request
from app.http.route import admit
from app.requests.negotiation import JSON, accepted

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
