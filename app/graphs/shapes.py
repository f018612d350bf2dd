"""Symbolic shapes of nodes, made equal where a value of one is an input of another (unification).

A shape is a tuple of terms: a size, the name of a static attribute of the graph, a ``Size`` that is not known yet, or,
once at most, a ``Rest``: any number of dimensions, the ``"..."`` of a contract.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias


class Size:
    """A dimension of unknown size; ``name`` is that of its symbol."""

    def __init__(self, name: str) -> None:
        """Take the name."""
        self.name = name


class Rest:
    """Any number of dimensions."""


Term: TypeAlias = int | str | Size | Rest
Terms: TypeAlias = tuple[Term, ...]


class Mismatch(Exception):
    """Two shapes cannot be equal."""


class Shapes:
    """What is known of sizes and rests."""

    def __init__(self) -> None:
        """Know nothing."""
        self._sizes, self._rests = dict[Size, Term](), dict[Rest, Terms]()

    def resolved(self, terms: Iterable[Term]) -> Terms:
        """Return a shape with all that is known."""
        found: list[Term] = []
        for term in terms:
            if isinstance(term, Rest) and term in self._rests:
                found += self.resolved(self._rests[term])
                continue
            known = term
            while isinstance(known, Size) and known in self._sizes:
                known = self._sizes[known]
            found.append(known)
        return tuple(found)

    def unify(self, one: Terms, other: Terms) -> None:
        """Make two shapes equal; unknowns of ``other`` become those of ``one``. Raises ``Mismatch`` if they differ."""
        one, other = self.resolved(one), self.resolved(other)
        before, rest, after = _split(one)
        other_before, other_rest, other_after = _split(other)
        if rest is None and other_rest is None:
            if len(one) != len(other):
                raise Mismatch
            self._equate(one, other)
            return
        if rest is None:
            assert other_rest is not None
            start, end = len(other_before), len(one) - len(other_after)
            if start > end:
                raise Mismatch
            self._equate((*one[:start], *one[end:]), (*other_before, *other_after))
            self._rests[other_rest] = one[start:end]
            return
        if other_rest is None:
            start, end = len(before), len(other) - len(after)
            if start > end:
                raise Mismatch
            self._equate((*before, *after), (*other[:start], *other[end:]))
            self._rests[rest] = other[start:end]
            return
        first, last = min(len(before), len(other_before)), min(len(after), len(other_after))
        self._equate(before[:first], other_before[:first])
        self._equate(after[len(after) - last :], other_after[len(other_after) - last :])
        before, other_before = before[first:], other_before[first:]
        after, other_after = after[: len(after) - last], other_after[: len(other_after) - last]
        if rest is other_rest:
            if before or other_before or after or other_after:
                raise Mismatch
        elif not other_before and not other_after:
            self._rests[other_rest] = (*before, rest, *after)
        elif not before and not after:
            self._rests[rest] = (*other_before, other_rest, *other_after)
        else:
            # One has dimensions before, the other after its rest: these are different ones, if there are enough.
            middle = Rest()
            self._rests[other_rest if before else rest] = (*(before or other_before), middle)
            self._rests[rest if before else other_rest] = (middle, *(other_after or after))

    def _equate(self, one: Sequence[Term], other: Sequence[Term]) -> None:
        for left, right in zip(self.resolved(one), self.resolved(other), strict=True):
            # What came before may have bound either.
            (a,), (b,) = self.resolved((left,)), self.resolved((right,))
            if a is b or (not isinstance(a, Size) and not isinstance(b, Size) and a == b):
                continue
            if isinstance(b, Size):
                self._sizes[b] = a
            elif isinstance(a, Size):
                self._sizes[a] = b
            else:
                raise Mismatch


class Namer:
    """Gives terms the symbols of a contract: each unknown size gets a unique name, close to that on an op's page."""

    def __init__(self, taken: Iterable[str]) -> None:
        """Take the names that no size may have."""
        self._taken, self._names = {name.lower() for name in taken}, dict[Size, str]()

    def keep(self, named: Mapping[str, Term]) -> None:
        """Let sizes that the document names keep their names."""
        for name, term in named.items():
            if isinstance(term, Size) and term not in self._names:
                self._names[term] = name
                self._taken.add(name.lower())

    def pattern(self, terms: Terms) -> tuple[str | int, ...]:
        """Return a resolved shape as a contract has it."""
        return tuple([self._symbol(term) for term in terms])

    def _symbol(self, term: Term) -> str | int:
        if isinstance(term, Rest):
            return "..."
        if not isinstance(term, Size):
            return term
        if term not in self._names:
            name, number = term.name, 1
            while name.lower() in self._taken:
                number += 1
                name = f"{term.name}{number}"
            self._names[term] = name
            self._taken.add(name.lower())
        return self._names[term]


def _split(terms: Terms) -> tuple[Terms, Rest | None, Terms]:
    """Return the dimensions before the rest, the rest if there is one, and the dimensions after it."""
    for at, term in enumerate(terms):
        if isinstance(term, Rest):
            return terms[:at], term, terms[at + 1 :]
    return terms, None, ()
