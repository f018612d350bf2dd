"""The templates of a process, bounded, and how often requests without one have come."""

from collections import OrderedDict
from collections.abc import Hashable

from app.fast_path.prefixes import RequestPrefix
from app.fast_path.templates import Template

# The most prefixes that are kept, and the most bytes of all their templates.
PREFIXES, TEMPLATE_BYTES = 256, 1 << 24
# How often a request must come before it gets a template, and how many requests are counted.
SEEN, COUNTED = 2, 4096
# After so many requests the next attempt comes if the last one shows nothing; a power of two.
SOON = 4
# After so many requests in a row without a template, a prefix without any rests: the next ones take the general path
# at once.
FAILURES, REST = 8, 1000


class TemplateCache:
    """The prefixes of a process, and how often others have come."""

    def __init__(self) -> None:
        """Start empty."""
        self._prefixes = OrderedDict[bytes, RequestPrefix | None]()
        self._counts = OrderedDict[int, int]()
        self._weight = 0

    def find(self, key: bytes) -> RequestPrefix | None:
        """Return the prefix with these bytes, ``None`` if it is unknown, or rests."""
        prefix = self._prefixes.get(key)
        if prefix is None:
            return None
        self._prefixes.move_to_end(key)
        # A prefix with templates must look at each body, whatever else comes under it.
        if prefix.failures >= FAILURES and not prefix.weight:
            prefix.failures = FAILURES - 1 if prefix.failures >= REST else prefix.failures + 1
            return None
        return prefix

    def has(self, key: bytes) -> bool:
        """Return whether a prefix is kept."""
        return key in self._prefixes

    def add(self, key: bytes, prefix: RequestPrefix | None) -> None:
        """Keep a prefix without templates, ``None`` for one whose requests take the general path."""
        self._prefixes[key] = prefix
        self._make_room()

    def store(self, prefix: RequestPrefix, body: bytes, template: Template) -> None:
        """Keep the template of a body under a prefix that is kept."""
        self._weight -= prefix.weight
        prefix.add(body, template)
        self._weight += prefix.weight
        self._make_room()

    def _make_room(self) -> None:
        """Drop the least recently used prefixes while there are too many, or too many bytes of templates."""
        while len(self._prefixes) > PREFIXES or self._weight > TEMPLATE_BYTES:
            _, prefix = self._prefixes.popitem(last=False)
            self._weight -= prefix.weight if prefix is not None else 0

    def is_due(self, thing: Hashable) -> bool:
        """Count a prefix or a likeness; return whether to try to keep it now.

        That is so when it has come ``SEEN`` times, and then at each doubling: what has no template by then may differ
        from request to request.
        """
        mark = hash(thing)
        count = self._counts.pop(mark, 0) + 1
        self._counts[mark] = count
        if len(self._counts) > COUNTED:
            self._counts.popitem(last=False)
        return count >= SEEN and count.bit_count() == 1

    def retry_later(self, thing: Hashable) -> None:
        """Try again after ``SOON`` more requests: the last one did not show whether there can be a template."""
        self._counts[hash(thing)] = SOON
