"""How a response is written: the places of the results in it, and the form of their numbers.

The writer of the ordinary way writes marked results, and then the numbers of ``edges``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import orjson
import pybase64

from app.autodiff.evaluation import present
from app.express import bodies, edges
from app.express.bodies import Range
from app.express.frames import MAX_TEXT, NUMPY, Form, Hole, Response, write
from app.express.marks import SIGNS, marks
from app.http.problems import Header
from app.requests.answering import PIECE, Reply
from app.runtime.modes import KeyedArrays
from ops import Array

# The most characters of a number and its comma.
MAX_DIGITS = 25
HEAD = re.compile(
    rb"(HTTP/1\.1 200 OK\r\ndate: )[^\r]+(\r\n(?:[^\r]+\r\n)*content-length: )[0-9]+"
    rb"(\r\n(?:[^\r]+\r\n)*x-request-id: )[A-Za-z0-9._-]+(\r\n(?:[^\r]+\r\n)*\r\n)"
)

Writer: TypeAlias = Callable[[KeyedArrays], Reply]
"""Returns the response to results; raises a ``PullbackError`` for results that it refuses."""


def read_response(sent: bytes, writers: Sequence[Writer], results: KeyedArrays) -> Response | None:
    """Return the response without its numbers; ``None`` if any other results would change more than these.

    ``sent`` are the bytes of a whole response to ``results``. The writers are those of two equal requests.
    """
    head, _, body = sent.partition(b"\r\n\r\n")
    match = HEAD.fullmatch(head + b"\r\n\r\n")
    if match is None or b"\r\nconnection:" in head.lower():
        return None
    # A header may depend on the length of the numbers, which differs with their sign.
    first, second = (_marked_response(write, results, sign) for write, sign in zip(writers, SIGNS, strict=True))
    texts, holes, _ = first
    is_large = sum(array.size for array in results.values() if array is not None) * MAX_DIGITS > PIECE
    if not holes or first != second or is_large or sum(map(len, texts)) > MAX_TEXT:
        return None
    start, before_length, before_id, end = match.groups()
    response = Response((start, before_length, before_id, end), texts, holes)
    if _written(response, results) != body or not _writes_alike(writers[0], results, response):
        return None
    return response


def _marked_response(
    write_results: Writer, results: KeyedArrays, sign: int
) -> tuple[tuple[bytes, ...], tuple[Hole, ...], Sequence[Header]]:
    """Return the response to marked results: its texts around them, the place of each, and its headers."""
    marked: KeyedArrays = dict(results)
    for number, (key, array) in enumerate(results.items(), 1):
        if array is not None:
            marked[key] = marks(array.size, number, sign).astype(array.dtype).reshape(array.shape)
    reply = write_results(marked)
    body = b"".join(reply.pieces)
    found = list[tuple[int, int, Hole]]()
    for key, array in marked.items():
        if array is None:
            continue
        for form, dtype, text in _texts(array):
            if count := body.count(text):
                if count > 1:
                    return (), (), ()
                found.append((at := body.index(text), at + len(text), Hole(key, form, array.shape, dtype)))
                break
    found.sort(key=lambda each: each[:2])
    places = [Range(start, stop, is_base64=False) for start, stop, _ in found]
    return bodies.without(body, places), tuple(hole for *_, hole in found), reply.headers


def _texts(array: Array) -> Iterator[tuple[Form, np.dtype[Any], bytes]]:
    """Yield an array in every form, and every dtype, in which a response may have it."""
    for dtype in dict.fromkeys((array.dtype, np.dtype(np.float64))):
        numbers = array.astype(dtype, copy=False)
        yield "list", dtype, orjson.dumps(numbers.reshape(-1), option=NUMPY)[1:-1]
        yield "nested", dtype, orjson.dumps(numbers if numbers.ndim else numbers[()], option=NUMPY)
    yield "base64", array.dtype, pybase64.b64encode(array.tobytes())
    yield "bytes", array.dtype, array.tobytes()


def _written(response: Response, results: KeyedArrays) -> bytes | None:
    """Return the body of a response for these results, ``None`` if the ordinary way must write it."""
    return response.body([write(present(results[hole.key]).reshape(1, -1), hole)[0] for hole in response.holes])


def _writes_alike(write_results: Writer, results: KeyedArrays, response: Response) -> bool:
    """Return whether a response has the bytes that the writer writes, for all results at the edges, or none."""
    for others in edges.results_at_edges(results):
        body = _written(response, others)
        if body is not None and body != b"".join(write_results(others).pieces):
            return False
    return True
