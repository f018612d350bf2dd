"""A random sample of the requests to each model, bounded in their number and their bytes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_MODELS = 64
"""The most models of a server whose requests are kept."""
MAX_BYTES = 64 << 20
"""The most bytes of requests and answers that are kept."""


@dataclass(frozen=True)
class Sample:
    """A request that was answered, the ``number``-th to its model; ``answer`` is ``None`` if it was not kept."""

    number: int
    model: str
    path: str
    body: bytes
    answer: bytes | None

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.body) + len(self.answer or b"")


@dataclass(eq=False)
class Reservoir:
    """The requests to one model: ``seen`` of them, of which each is in ``kept`` with the same probability."""

    rng: random.Random
    seen: int = 0
    kept: list[Sample] = field(default_factory=list[Sample])
    taken: set[int] = field(default_factory=set[int])

    def take(self) -> Sample | None:
        """Return one of those kept that was not returned before, at random; ``None`` if there is none."""
        left = [sample for sample in self.kept if sample.number not in self.taken]
        if not left:
            return None
        found = self.rng.choice(left)
        self.taken.add(found.number)
        return found


@dataclass(eq=False)
class Reservoirs:
    """The samples of all models, ``size`` requests of each. The same requests and seed have the same sample."""

    size: int
    seed: int
    unkept: int = 0
    """The requests that were drawn, and left out for their size."""
    _by_model: dict[str, Reservoir] = field(default_factory=dict[str, Reservoir])
    _bytes: int = 0

    def offer(self, model: str, path: str, body: bytes, answer: bytes | None) -> None:
        """Count a request, and keep it if it is drawn."""
        found = self._by_model.get(model)
        if found is None:
            if len(self._by_model) >= MAX_MODELS:
                self.unkept += 1
                return
            found = self._by_model[model] = Reservoir(random.Random(f"{self.seed} {model}"))
        found.seen += 1
        at = len(found.kept) if len(found.kept) < self.size else found.rng.randrange(found.seen)
        if at < self.size:
            self._keep(found, at, Sample(found.seen, model, path, body, answer))

    def _keep(self, reservoir: Reservoir, at: int, sample: Sample) -> None:
        old = reservoir.kept[at].size if at < len(reservoir.kept) else 0
        if self._bytes - old + sample.size > MAX_BYTES:
            self.unkept += 1
            return
        self._bytes += sample.size - old
        reservoir.kept[at : at + 1] = [sample]

    def __iter__(self) -> Iterator[tuple[str, Reservoir]]:
        return iter(list(self._by_model.items()))
