"""Some numbers of a large sample of an elementwise op."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from app.autodiff.binding import moved
from app.autodiff.derivatives import Kind
from app.gradcheck.sample import Sample
from app.runtime.modes import Key
from ops import Array


@dataclass(frozen=True, eq=False)
class Subsample(Sample):
    """Some numbers of an elementwise op's sample, in one dimension, with their flat ``indices`` in the whole.

    Their values are those that they have in the whole.
    """

    whole: Sample = field(kw_only=True)
    indices: Array = field(kw_only=True)

    @classmethod
    def of(cls, whole: Sample, indices: Array) -> "Subsample":
        """Select the numbers at flat ``indices``."""
        inputs, dys, vectors = (
            {name: x.ravel()[indices] for name, x in named.items()}
            for named in (whole.point.inputs, whole.cotangents, whole.vectors)
        )
        point = moved(whole.point, inputs)
        return cls(point, dys, vectors, whole=whole, indices=indices, last=whole.last)

    def up_to(self, last: Kind) -> Sample:
        """Return the same subsample without the values of later kinds."""
        return replace(self, whole=self.whole.up_to(last), last=last)

    @cached_property
    def values(self) -> dict[Key, Array]:
        """The values of the whole at the indices."""
        return {key: value.ravel()[self.indices] for key, value in self.whole.values.items()}

    def index(self, name: str) -> Callable[[int], tuple[int, ...]]:
        """Return a function from the position of a number in the subsample to its index in the whole."""
        index = self.whole.index(name)
        return lambda i: index(int(self.indices[i]))
