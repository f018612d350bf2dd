"""Words for people: a count with its noun, the names that a misspelt one may mean, and the colors of terminals."""

import difflib
import re
from collections.abc import Iterable

# What one has typed of a name, and how alike two names are. "vpj" is as like "vjp" as 0.67, "nope" as "log1pexp" 0.5.
LEAST_TYPED, LEAST_ALIKE, MOST_READ = 3, 0.65, 64
_CODE = re.compile(r"\x1b\[[0-9;]*+[A-Za-z]")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 op``, ``2 ops``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def near_names(name: str, known: Iterable[str], most: int) -> list[str]:
    """Return known names that begin with ``name``, or have a word that does, and then those that are spelt like it."""
    names, name = list(known), name[:MOST_READ]
    begun = [each for each in names if any(word.startswith(name) for word in (each, *each.split("_")))]
    alike = difflib.get_close_matches(name, names, n=most, cutoff=LEAST_ALIKE)
    return list(dict.fromkeys([*(begun if len(name) >= LEAST_TYPED else ()), *alike]))[:most]


def without_terminal_codes(text: str) -> str:
    """Return the text, such as that of an exception of Keras, without its codes."""
    return _CODE.sub("", text)
