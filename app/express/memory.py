"""What the express way has learned, bounded, and how often it has seen what it has not learned."""

from collections import OrderedDict
from collections.abc import Hashable

from app.express.frames import Frame
from app.express.heads import Head

# The most heads that are kept, and the most bytes of all their frames.
HEADS, FRAME_BYTES = 256, 1 << 24
# How often something must be seen before it is learned, which takes as long as to answer several requests.
SEEN, SIGHTS = 2, 4096
# The sights after which it is tried again if the last request did not show whether it can be learned; a power of two.
SOON = 4
# After so many requests in a row without a frame, a head without any rests: the next ones go the ordinary way at once.
FAILURES, REST = 8, 1000


class Memory:
    """The heads of a process, and how often others have been seen."""

    def __init__(self) -> None:
        """Start with none."""
        self._heads = OrderedDict[bytes, Head | None]()
        self._seen = OrderedDict[int, int]()
        self._weight = 0

    def find(self, key: bytes) -> Head | None:
        """Return the head with these bytes, ``None`` if it is unknown, or rests."""
        head = self._heads.get(key)
        if head is None:
            return None
        self._heads.move_to_end(key)
        # A head with frames must look at each body, whatever else comes under it.
        if head.failures >= FAILURES and not head.weight:
            head.failures = FAILURES - 1 if head.failures >= REST else head.failures + 1
            return None
        return head

    def knows(self, key: bytes) -> bool:
        """Return whether a head has been added, and not been forgotten."""
        return key in self._heads

    def add(self, key: bytes, head: Head | None) -> None:
        """Keep a head without frames, ``None`` for one whose requests go the ordinary way."""
        self._heads[key] = head
        self._make_room()

    def learn(self, head: Head, body: bytes, frame: Frame) -> None:
        """Keep the frame of a body under a head, which is one of the heads."""
        self._weight -= head.weight
        head.add(body, frame)
        self._weight += head.weight
        self._make_room()

    def _make_room(self) -> None:
        """Forget the heads that have not been used for the longest time, if there are too many, or too many frames."""
        while len(self._heads) > HEADS or self._weight > FRAME_BYTES:
            _, head = self._heads.popitem(last=False)
            self._weight -= head.weight if head is not None else 0

    def is_familiar(self, thing: Hashable) -> bool:
        """Note that something has been seen; return whether to learn it now.

        That is so when it has been seen ``SEEN`` times, and then at each doubling: what is still unknown by then may
        differ from request to request.
        """
        mark = hash(thing)
        count = self._seen.pop(mark, 0) + 1
        self._seen[mark] = count
        if len(self._seen) > SIGHTS:
            self._seen.popitem(last=False)
        return count >= SEEN and count.bit_count() == 1

    def defer(self, thing: Hashable) -> None:
        """Learn something that is familiar after ``SOON`` more sights: the last one did not show whether it can be."""
        self._seen[hash(thing)] = SOON
