"""The stage of a phase: a service, the good requests with their answers on it, the time, and the seed."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.hostile.findings import Findings
from tests.hostile.target import Target
from tests.hostile.witness import Good


@dataclass(frozen=True)
class Stage:
    """What a phase gets: it attacks ``target`` for about ``seconds`` and records what it finds in ``findings``."""

    target: Target
    goods: Sequence[Good]
    findings: Findings
    seconds: float
    seed: str
