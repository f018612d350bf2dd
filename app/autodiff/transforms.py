"""Transforms: every derivative of an op is a sequence of them, each applied to the results of the one before.

The first transform differentiates the op's outputs. Its results are functions of *leaves*: the op's inputs, and the
seeds (cotangents, tangents or weights) of the transform. The second one differentiates these results with respect to
any of these leaves, and so on: one rule gives every derivative of every order. ``signature`` names the leaves and the
results, and carries along what is known of inputs and outputs: ranks, shapes or slots.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

V = TypeVar("V")

Rule: TypeAlias = Literal["vjp", "jvp", "diagonal", "half_square"]
# The letter before the names of the results, which are cotangents or tangents; those of other rules keep their names.
RESULT_LETTERS: Mapping[Rule, str] = {"vjp": "d", "jvp": "t"}


class Transform(NamedTuple):
    """A rule, the results ``of`` which it takes the derivative, and the leaves with respect to which (``wrt``).

    ===============  ===================================================================================
    ``vjp``          the cotangents of ``wrt``, for a cotangent of each of ``of``
    ``jvp``          the tangents of ``of``, for a tangent of each of ``wrt``
    ``diagonal``     the derivative of the cotangent of each of ``wrt`` in its own leaf, number by number
    ``half_square``  c y²/2 for each y of ``of``, with a weight c of each
    ===============  ===================================================================================

    The cotangents are leaves, unless they are ``ones``.
    """

    rule: Rule
    wrt: tuple[str, ...]
    of: tuple[str, ...]
    ones: bool = False

    @property
    def orders(self) -> int:
        """The number of nested pullbacks: a jvp is the vjp of the vjp with respect to its cotangent."""
        return {"vjp": 1, "jvp": 2, "diagonal": len(self.wrt), "half_square": 0}[self.rule]

    @property
    def seeds(self) -> tuple[str, ...]:
        """The leaves that are given a tangent, or the results that are given a cotangent or a weight."""
        if self.rule == "jvp":
            return self.wrt
        return () if self.ones or self.rule == "diagonal" else self.of


@dataclass(frozen=True)
class Signature(Generic[V]):
    """The leaves and results of a sequence of transforms, each with its value.

    ``leaves`` has the inputs and then the seeds. ``seeds`` has, for each transform, the name of the leaf for each leaf
    or result that is given a seed. ``levels`` has the outputs, and then the results of each transform: by the leaf of
    which they are the cotangents, or by the result of which they are the tangents. ``names`` are their names as
    outputs.
    """

    leaves: dict[str, V]
    seeds: list[dict[str, str]]
    levels: list[dict[str, V]]
    names: list[dict[str, str]]


def signature(
    transforms: Iterable[Transform], inputs: Mapping[str, V], outputs: Mapping[str, V], taken: Collection[str]
) -> Signature[V]:
    """Return the signature of transforms of an op with these inputs and outputs. No leaf has a name that is ``taken``.

    The cotangent of ``n`` is called ``dn``, and its tangent ``tn``; a letter is repeated until the name is unique.
    """
    leaves, level, names = dict(inputs), dict(outputs), {name: name for name in outputs}
    found = Signature(leaves, [], [level], [names])
    for transform in transforms:
        if transform.rule == "jvp":
            seeds = fresh("t", {name: name for name in transform.seeds}, {*leaves, *taken})
            leaves.update({leaf: leaves[name] for name, leaf in seeds.items()})
        else:
            seeds = fresh("d", {name: names[name] for name in transform.seeds}, {*leaves, *taken})
            leaves.update({leaf: level[name] for name, leaf in seeds.items()})
        if transform.rule == "vjp":
            level, names = {name: leaves[name] for name in transform.wrt}, {name: name for name in transform.wrt}
        else:
            level, names = {name: level[name] for name in transform.of}, {name: names[name] for name in transform.of}
        if transform.rule in RESULT_LETTERS:
            names = fresh(RESULT_LETTERS[transform.rule], names, {*leaves, *taken})
        found.seeds.append(seeds)
        found.levels.append(level)
        found.names.append(names)
    return found


def fresh(letter: str, names: Mapping[str, str], taken: Collection[str]) -> dict[str, str]:
    """Return each name with a letter in front, repeated until the name differs from the others and from ``taken``."""
    found: dict[str, str] = {}
    for key, name in names.items():
        new = letter + name
        while new in taken or new in found.values():
            new = letter + new
        found[key] = new
    return found
