"""Members: requests of a batch, and parts of requests that the express way has put aside."""

from dataclasses import dataclass
from typing import TypeAlias

from app.express.frames import Columns, Frame
from app.http.connection import Connection


@dataclass(eq=False, slots=True)
class Member:
    """A request that waits for its call: all its ``data``, and what the log shows of it.

    ``began`` and ``parsed``, the end of its reading, are times of ``time.perf_counter``; reading took ``read_s``.
    ``is_done``: it has been answered, or given back.
    """

    connection: Connection
    data: bytes
    frame: Frame
    columns: Columns
    target: str
    client: tuple[str, int] | None
    received: int
    key: str
    began: float
    parsed: float
    read_s: float
    is_done: bool = False
    method: str = "POST"
    status: int = 200
    sent: int = 0
    id: bytes = b""


Batch: TypeAlias = dict[Frame, list[Member]]
"""The members of a batch by their frames."""


@dataclass(eq=False, slots=True)
class Part:
    """The first part of a request with a learned head; the whole body has ``size`` bytes."""

    data: bytes
    size: int
    since: float
