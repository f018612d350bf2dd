"""Words: a derivative of an op is a word of steps, each of which differentiates the results of the step before.

The first step differentiates the op's outputs. Its results are functions of *leaves*: the op's inputs, and the
directions (cotangents or tangents) that the step is given. The second step differentiates these results in any of these
leaves, and so on: one rule gives every derivative of every order. ``walk`` names the leaves and results, and carries
along what is known of inputs and outputs: ranks, shapes or slots.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, Literal, TypeAlias, TypeVar

from ops import Op

V = TypeVar("V")

Rule: TypeAlias = Literal["vjp", "jvp", "diagonal", "half_square"]


@dataclass(frozen=True)
class Step:
    """One step: a rule, the leaves that it differentiates in (``wrt``) and the results that it differentiates (``of``).

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

    def __hash__(self) -> int:
        """Return the hash of the fields, computed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.rule, self.wrt, self.of, self.ones))

    @property
    def orders(self) -> int:
        """The number of nested pullbacks: a jvp is the vjp of the vjp with respect to its cotangent."""
        return {"vjp": 1, "jvp": 2, "diagonal": len(self.wrt), "half_square": 0}[self.rule]

    @property
    def directed(self) -> tuple[str, ...]:
        """The leaves or results that are given a direction: a tangent, a cotangent or a weight."""
        if self.rule == "jvp":
            return self.wrt
        return () if self.ones or self.rule == "diagonal" else self.of


# Requests repeat the same few steps, and equal ones are found faster if they are one object.
@lru_cache(maxsize=1024)
def vjp(wrt: tuple[str, ...], of: tuple[str, ...], *, ones: bool = False) -> Step:
    """Return the step that pulls cotangents of the results ``of``, or ones, back to the leaves ``wrt``."""
    return Step("vjp", wrt, of, ones)


@lru_cache(maxsize=1024)
def jvp(wrt: tuple[str, ...], of: tuple[str, ...]) -> Step:
    """Return the step that pushes tangents of the leaves ``wrt`` forward to the results ``of``."""
    return Step("jvp", wrt, of)


def diagonal(wrt: tuple[str, ...]) -> Step:
    """Return the step that differentiates the cotangent of each leaf in the leaf itself, number by number."""
    return Step("diagonal", wrt, wrt)


def half_square(of: tuple[str, ...]) -> Step:
    """Return the step that turns each result y into c y²/2, with a weight c."""
    return Step("half_square", (), of)


@dataclass(frozen=True)
class Layout(Generic[V]):
    """The leaves and results of a word, each with its value.

    ``leaves`` has the inputs and then the directions. ``directions`` has, for each step, the name of the leaf for each
    leaf or result that is given a direction. ``levels`` has the outputs, and then the results of each step: by the leaf
    of which they are the cotangents, or by the result of which they are the tangents. ``names`` are their names as
    outputs.
    """

    leaves: dict[str, V]
    directions: list[dict[str, str]]
    levels: list[dict[str, V]]
    names: list[dict[str, str]]


def walk(word: Iterable[Step], inputs: Mapping[str, V], outputs: Mapping[str, V], taken: Collection[str]) -> Layout[V]:
    """Return the layout of a word over inputs and outputs. No leaf has a name that is ``taken``.

    The cotangent of ``n`` is called ``dn``, and its tangent ``tn``, with as many more letters in front as it takes.
    """
    layout = Layout(dict(inputs), [], [dict(outputs)], [{name: name for name in outputs}])
    leaves = layout.leaves
    for step in word:
        level, names = layout.levels[-1], layout.names[-1]
        if step.rule == "jvp":
            given = fresh("t", {name: name for name in step.directed}, {*leaves, *taken})
            leaves.update({given[name]: leaves[name] for name in step.directed})
        else:
            given = fresh("d", {name: names[name] for name in step.directed}, {*leaves, *taken})
            leaves.update({given[name]: level[name] for name in step.directed})
        match step.rule:
            case "vjp":
                level, names = {name: leaves[name] for name in step.wrt}, {name: name for name in step.wrt}
                names = fresh("d", names, {*leaves, *taken})
            case "jvp":
                level, names = {name: level[name] for name in step.of}, {name: names[name] for name in step.of}
                names = fresh("t", names, {*leaves, *taken})
            case "diagonal" | "half_square":
                level, names = {name: level[name] for name in step.of}, {name: names[name] for name in step.of}
        layout.directions.append(given)
        layout.levels.append(level)
        layout.names.append(names)
    return layout


def directions(step: Step, op: Op) -> dict[str, str]:
    """Return the name of the leaf for each direction of a step that differentiates an op."""
    inputs, outputs = ({slot.name: slot.name for slot in slots} for slots in (op.inputs, op.outputs))
    return walk((step,), inputs, outputs, op.attrs.model_fields).directions[0]


def fresh(letter: str, names: Mapping[str, str], taken: Collection[str]) -> dict[str, str]:
    """Return each name with a letter in front, or as many as it takes to differ from the others and ``taken``."""
    found: dict[str, str] = {}
    for key, name in names.items():
        new = letter + name
        while new in taken or new in found.values():
            new = letter + new
        found[key] = new
    return found
