"""The minimal server: a plain ASGI function that returns half of its input. ``python echo.py PORT``.

A gradient is half as large as the input and the cotangent in its request.
"""

import sys
from typing import Any

import uvicorn


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Return the first half of the body."""
    del scope
    parts, more = list[bytes](), True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(parts)
    body = body[: len(body) // 2]
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        echo, port=int(sys.argv[1]), loop="uvloop", http="httptools", lifespan="off", access_log=False, ws="none"
    )
