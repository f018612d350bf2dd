"""A planted fault: a wrong op, and the checks that must name its fault."""

from dataclasses import dataclass

from ops import Op


@dataclass(frozen=True)
class Planted:
    """A wrong op. Any one of ``checks`` must fail, with ``words`` in its sentence."""

    op: Op
    checks: tuple[str, ...]
    words: str = ""
