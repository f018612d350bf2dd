"""Members: requests that the express way has taken, on their way from the first part to the batch."""

from dataclasses import dataclass
from typing import TypeAlias

from app.express.frames import Columns, Frame
from app.express.heads import Head
from app.http.connection import Connection


@dataclass(eq=False, slots=True)
class Member:
    """A request that waits for its call: all its ``data``, and what the log shows of it.

    ``parsed`` is the end of its reading; that and ``began`` are times of ``time.perf_counter``. ``is_done``: it has
    been answered, or given back.
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
    is_done: bool = False
    method: str = "POST"
    status: int = 200
    sent: int = 0
    id: bytes = b""


Batch: TypeAlias = dict[Frame, list[Member]]
"""The members of a batch by their frames."""


@dataclass(eq=False, slots=True)
class Arrival:
    """A whole request with a learned head, which waits for its turn: all its ``data``, its body, its head's key."""

    connection: Connection
    data: bytes
    body: bytes
    key: bytes
    head: Head
    began: float


@dataclass(eq=False, slots=True)
class Part:
    """The first part of a request with a learned head; the whole body has ``size`` bytes."""

    data: bytes
    size: int
    since: float
