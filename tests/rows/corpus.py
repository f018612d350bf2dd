"""Ops whose rows are independent, ops whose rows only seem so, and pages of them for a service."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.rows import seeming
from tests.rows.independent import attributes, matrices, reductions

INDEPENDENT = {op.name: op for op in (*attributes.OPS, *matrices.OPS, *reductions.OPS)}
SEEMING = {op.name: op for op in seeming.OPS}
CORPUS = INDEPENDENT | SEEMING
# Without a declaration, a service can neither join nor pad the rows.
ALONE = {name: replace(op, batching="none") for name, op in CORPUS.items()}
PAGE = """from tests.rows.corpus import {corpus}

OP = {corpus}["{name}"]
"""


def write_pages(to: Path, names: Iterable[str] = CORPUS, corpus: str = "CORPUS") -> Path:
    """Write a page for each of the ops of a corpus, ``CORPUS`` or ``ALONE``, and remove all other pages there."""
    to.mkdir(parents=True, exist_ok=True)
    for path in to.glob("*.py"):
        path.unlink()
    for name in names:
        (to / f"{name}.py").write_text(PAGE.format(corpus=corpus, name=name))
    return to
