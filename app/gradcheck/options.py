"""The options of a check, as a request sets them."""

from collections.abc import Mapping
from dataclasses import dataclass

from ops import Mode
from pullback.gradcheck.number_comparison import Tolerances


@dataclass(frozen=True)
class Options:
    """How to check; ``None`` stands for all that the op has.

    ``absolute`` and ``relative`` widen every comparison of numbers. ``work`` is the most numbers that one numeric
    derivative may evaluate; ``devices`` maps our names to TensorFlow's, and the others are compared with the first.
    With ``strict_claims``, notes on declarations fail.
    """

    devices: Mapping[str, str]
    dtypes: tuple[str, ...] | None = None
    modes: tuple[Mode, ...] | None = None
    orders: tuple[int, ...] = (1, 2)
    seed: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    work: int = 1 << 24
    max_elements: int = 1 << 22
    strict_claims: bool = False

    @property
    def tolerances(self) -> Tolerances:
        """What the request adds to every error bar."""
        return Tolerances(self.absolute, self.relative)

    @property
    def device(self) -> str:
        """TensorFlow's name of the device that the checks run on."""
        return next(iter(self.devices.values()))
