"""Everything that a run of ``serving.py`` finds."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.alone import Alone
from benchmarks.cells import Found
from benchmarks.clients import Clients
from benchmarks.fast_path import Express


class Run(NamedTuple):
    """A run: the candidates, their outcomes, the reasons for missing servers, the other parts, and the kind of run."""

    names: Sequence[str]
    found: Found
    absent: Mapping[str, str]
    express: Express | None
    clients: Clients | None
    alone: Alone | None
    kind: str
