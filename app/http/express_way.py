"""The express way as connections see it; ``app.express`` implements it."""

from typing import Protocol, TypeVar

C_contra = TypeVar("C_contra", contravariant=True)

EXPRESS, LESSON = "express", "pullback.lesson"
"""The key of the ``ExpressWay`` in the state that the application shares with the server, and that of the ``Lesson`` in
the scope of a request, if it has one."""


class Lesson(Protocol):
    """A request from whose response the express way learns; ``sent`` gets the bytes of the response."""

    @property
    def sent(self) -> list[bytes]:
        """The pieces of the response, in order."""
        ...


class ExpressWay(Protocol[C_contra]):
    """The part of ``app.express.express.Express`` that connections, of one class, use."""

    def receive(self, connection: C_contra, data: bytes) -> bytes:
        """Take data; return what the parser must get."""
        ...

    def give_back(self, connection: C_contra) -> bytes:
        """Let go of the connection; return what the parser must get."""
        ...

    def learn(self, lesson: Lesson) -> None:
        """Learn from a request that has been answered."""
        ...
