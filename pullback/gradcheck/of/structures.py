"""Models of calculators of forces: the energy of atoms that are displaced, in a cell that is strained.

Forces are minus the gradient of the energy, and the stress times the volume is its gradient in the strain. The numbers
of a calculator are at the atoms' places; those of the model are at displacements and a strain ε beside them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument
from pullback.gradcheck.function import (
    Arrays,
    Model,
    Point,
    Request,
    Slot,
    array_of,
    given_array,
    given_inputs,
)
from pullback.gradcheck.sample import largest_of

DISPLACED, STRAINED = 0.1, 2.0**-6
"""The largest random displacements, in Å, and numbers of a strain."""
VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
"""The numbers of a strain in the order of ASE: xx, yy, zz, 2yz, 2xz, 2xy."""

ANGLE = 2.0**-8
ANGLES = ((ANGLE, 2 / (3 * ANGLE)), (2 * ANGLE, -1 / (12 * ANGLE)))
"""Angles and the weights of the differences of energies at them, for a slope whose error is of order ``ANGLE``⁴."""

SYMMETRIC = np.array([(np.eye(3)[[i]].T @ np.eye(3)[[j]] + np.eye(3)[[j]].T @ np.eye(3)[[i]]) / 2 for i, j in VOIGT])


class Numbers(NamedTuple):
    """An energy in eV, forces (N, 3) in eV/Å, and the volume times the stress (3, 3) in eV, or ``None``."""

    energy: Any
    forces: Any
    virial: Any = None


class StructureModel(Model, ABC):
    """The energy of a structure at ``positions`` (N, 3) and ``cell`` (3, 3), by a calculator that ``compute`` calls.

    A strained structure is deformed by D = 1 + Σ ε s, and the derivative in ε is that of a further deformation, D⁻¹ s.
    This is not symmetric, so where the energy changes as the structure is turned, as in a field of the laboratory, it
    needs the antisymmetric part of the virial. A symmetric stress has none: it is the torque, half the derivative in
    an angle, which is then computed from energies.
    """

    is_energy = is_symmetric = True
    """``is_symmetric``: whether the virial of the calculator is symmetric."""
    strains: Array = SYMMETRIC
    """The change of the deformation with each number of a strain, (K, 3, 3)."""

    def __init__(self, name: str, positions: Array, cell: Array, *, has_stress: bool) -> None:
        """Set the structure; without a stress, only displacements are inputs. Raises ``BadArgument`` for no atoms."""
        self.name, self._positions, self._cell = name, positions, cell
        if not len(positions):
            raise BadArgument(f"{name}: expected at least one atom, got none")
        self.inputs = [
            Slot("displacements", positions.shape),
            *([Slot("strain", (len(self.strains),))] if has_stress else []),
        ]
        self.outputs = [Slot("energy", ())]
        self._last: tuple[Point, Numbers] | None = None

    @abstractmethod
    def compute(self, positions: Array, cell: Array) -> Numbers:
        """Return the numbers of the calculator, computed anew. Raises ``BadAnswer``."""

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        """Return the given displacements and strains, or random ones."""
        if not given:
            sizes = {"displacements": DISPLACED, "strain": STRAINED}
            drawn = ({slot.name: _random(slot, sizes[slot.name], rng) for slot in self.inputs} for _ in range(count))
            return [Point(each) for each in drawn]
        by_name = [given_inputs(each, self.inputs) for each in given]
        return [Point({slot.name: given_array(each[slot.name], slot) for slot in self.inputs}) for each in by_name]

    def values(self, point: Point) -> Arrays:
        """Return the energy, computed anew."""
        self._last = point, self.compute(*self._moved(point))
        return {"energy": array_of(self._last[1].energy, (), f"{self.name}: energy")}

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return the gradient of the energy: that of the computation of the values, if they are the last ones."""
        if self._last is None or self._last[0] is not point:
            self._last = point, self.compute(*self._moved(point))
        numbers, deformation = self._last[1], self._deformation(point)
        found: dict[str, Array] = {}
        if "displacements" in inputs:
            forces = array_of(numbers.forces, self._positions.shape, f"{self.name}: forces")
            found["displacements"] = -cotangent * (forces @ deformation.T)
        if "strain" in inputs:
            virial = array_of(numbers.virial, (3, 3), f"{self.name}: stress")
            if not np.array_equal(deformation, np.eye(3)) and self._has_torque:
                virial = virial + self._torque(*self._moved(point))
            slopes = np.linalg.solve(deformation.T, virial)
            found["strain"] = cotangent * np.einsum("kij,ij->k", self.strains, slopes)
        return found

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Raise ``BadAnswer``: calculators have none."""
        raise BadAnswer(f"{self.name}: a calculator has no jvp")

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Raise ``BadAnswer``: calculators have none."""
        raise BadAnswer(f"{self.name}: a calculator has no Hessian")

    def evaluation(self, point: Point, output: str) -> Request:
        """Return the structure, as JSON of positions and cell, whose energy the values are."""
        positions, cell = self._moved(point)
        body = {"positions": positions.tolist(), "cell": cell.tolist()}
        return Request(self.name, body, f"the {output}", is_http=False)

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return the structure, as JSON of positions and cell, and what of it is the gradient."""
        positions, cell = self._moved(point)
        shows = "minus the forces" if name == "displacements" else "volume times stress"
        return Request(self.name, {"positions": positions.tolist(), "cell": cell.tolist()}, shows, is_http=False)

    @cached_property
    def _has_torque(self) -> bool:
        """Whether the torque counts beside the virial, at a structure that no symmetry is left of."""
        if not self.is_symmetric:
            return False
        slots, sizes = self.inputs, (DISPLACED, STRAINED)
        rng = np.random.default_rng(0)
        point = Point({slot.name: _random(slot, size, rng) for slot, size in zip(slots, sizes, strict=True)})
        try:
            moved = self._moved(point)
            virial = array_of(self.compute(*moved).virial, (3, 3), f"{self.name}: stress")
            return largest_of(self._torque(*moved)) > self.tolerance * largest_of(virial)
        except BadAnswer:
            return False  # the checks meet it, too

    def _torque(self, positions: Array, cell: Array) -> Array:
        """Return the antisymmetric part of the virial, by central differences of the energy in three angles."""

        def energy(turn: Array) -> float:
            found = self.compute(positions @ turn, cell @ turn).energy
            return float(array_of(found, (), f"{self.name}: energy"))

        virial = np.zeros((3, 3))
        for i, j in ((0, 1), (0, 2), (1, 2)):
            slope = sum(w * (energy(_turn(i, j, a)) - energy(_turn(i, j, -a))) for a, w in ANGLES)
            virial[i, j], virial[j, i] = slope / 2, -slope / 2
        return virial

    def _deformation(self, point: Point) -> Array:
        return np.eye(3) + np.tensordot(point.inputs.get("strain", np.zeros(len(self.strains))), self.strains, 1)

    def _moved(self, point: Point) -> tuple[Array, Array]:
        deformation = self._deformation(point)
        return (self._positions + point.inputs["displacements"]) @ deformation, self._cell @ deformation


def strains_within(vectors: Array) -> Array:
    """Return the symmetric changes of a deformation that stretch nothing but what these vectors (K, 3) span.

    They are those of ``VOIGT`` if the vectors span planes or lines of the axes.
    """
    rank = np.linalg.matrix_rank(vectors) if len(vectors) else 0
    basis = np.linalg.svd(vectors)[2][:rank] if rank else np.zeros((0, 3))
    within = [s for s in SYMMETRIC if np.allclose(basis.T @ basis @ s @ basis.T @ basis, s)]
    if len(within) < rank * (rank + 1) // 2:
        pairs = [(basis[i], basis[j]) for i in range(rank) for j in range(i, rank)]
        within = [(np.outer(a, b) + np.outer(b, a)) / 2 for a, b in pairs]
    return np.array(within).reshape(-1, 3, 3)


def _turn(i: int, j: int, angle: float) -> Array:
    """Return the rotation that turns row vectors from axis i to axis j."""
    turn = np.eye(3)
    turn[i, i] = turn[j, j] = np.cos(angle)
    turn[i, j], turn[j, i] = np.sin(angle), -np.sin(angle)
    return turn


def _random(slot: Slot, size: float, rng: np.random.Generator) -> Array:
    return rng.uniform(size / 2, size, slot.shape) * rng.choice([-1.0, 1.0], slot.shape)
