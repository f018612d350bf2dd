"""Energies of structures of atoms, with forces, stress and Hessian products, by an op of a service.

The op is like ``docs/examples/forces/pair_energy.py``: energy (S) of positions (S, N, 3), cell (S, 3, 3), species
(S, N) and strain (S, 3, 3), in eV and Å, where species 0 is no atom.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.op import Op

SHAPES = {
    "positions": ["S", "N", 3],
    "cell": ["S", 3, 3],
    "species": ["S", "N"],
    "strain": ["S", 3, 3],
}
AT_ONCE = 48
"""How many Hessian products a request asks for."""


class Structure(NamedTuple):
    """Atoms: positions (N, 3) and cell (3, 3) in Å, atomic numbers (N), and in which directions the cell repeats."""

    positions: Array
    cell: Array
    species: Array
    periodic: Sequence[bool] = (True, True, True)


class Evaluation(NamedTuple):
    """An energy in eV, forces (N, 3) in eV/Å, and dE/dε (3, 3) in eV, which is the stress times the volume."""

    energy: float
    forces: Array
    virial: Array


class Potential:
    """An op of a service as the energy of structures; raises ``BadArgument`` for an op with other inputs.

    Attribute ``images`` is the least that the cells need, unless ``attrs`` has it.
    """

    def __init__(self, op: Op, attrs: Mapping[str, Any] | None = None, mode: str | None = None) -> None:
        """Set the op, and graph, eager, xla or v1 in place of its default mode; this sends nothing."""
        self.op, self.attrs, self.mode = op, dict(attrs or {}), mode

    def evaluate(self, structures: Sequence[Structure]) -> list[Evaluation]:
        """Return the energy, forces and stress of each, with one request for all."""
        inputs, attrs = self._request(structures)
        found = self.op.vjp(inputs, wrt=["positions", "strain"], outputs=True, attrs=attrs, mode=self.mode)
        results = (found.outputs[self._output], found.gradients["positions"], found.gradients["strain"])
        return [
            Evaluation(float(energy), -slopes[: len(one.species)], virial)
            for one, energy, slopes, virial in zip(structures, *results, strict=True)
        ]

    def hessian_products(self, structure: Structure, vectors: Array) -> Array:
        """Return the product (K, N, 3) of the second derivative of the energy and each vector (K, N, 3), in eV/Å²."""
        inputs, attrs = self._request([structure])
        found = [
            self.op.hvp(
                inputs,
                vectors={"positions": np.ascontiguousarray(vectors[i : i + AT_ONCE, None], np.float64)},
                wrt=["positions"],
                batched=True,
                attrs=attrs,
                mode=self.mode,
            ).products["positions"]
            for i in range(0, len(vectors), AT_ONCE)
        ]
        return np.concatenate(found)[:, 0]

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """The defaults of the attributes; asks for the contract."""
        contract = self.op.contract()
        shapes = {slot.name: list(slot.shape) for slot in contract.inputs}
        if shapes != SHAPES or [list(slot.shape) for slot in contract.outputs] != [["S"]]:
            raise BadArgument(f"op {self.op.name}: expected inputs {SHAPES} and an energy of shape ['S'], got {shapes}")
        self._output = contract.outputs[0].name
        properties = (contract.attrs or {}).get("properties", {})
        self._most_images = properties.get("images", {}).get("maximum", math.inf)
        return {name: each["default"] for name, each in properties.items() if "default" in each}

    def _request(self, structures: Sequence[Structure]) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the inputs, padded to the largest structure, and the attributes."""
        if not structures:
            raise BadArgument("expected at least one structure, got none")
        attrs = {**self._defaults, **self.attrs}
        cells = np.stack([closed_cell(one, attrs.get("cutoff")) for one in structures])
        if "images" in self._defaults and "images" not in self.attrs:
            attrs["images"] = self._images(cells, attrs["cutoff"])
        most = max(len(one.species) for one in structures)
        positions, species = np.zeros((len(structures), most, 3)), np.zeros((len(structures), most), np.int32)
        for i, one in enumerate(structures):
            positions[i, : len(one.species)], species[i, : len(one.species)] = one.positions, one.species
        strain = np.zeros((len(structures), 3, 3))
        return {"positions": positions, "cell": cells, "species": species, "strain": strain}, attrs

    def _images(self, cells: Array, cutoff: float) -> int:
        """Return how many the cells need; raise ``BadArgument`` for cells that need more than the op looks at."""
        if (needed := images(cells, cutoff)) > self._most_images:
            raise BadArgument(
                f"op {self.op.name}: expected a larger cell (repeat it), or a smaller cutoff, got a cell with {needed} "
                f"images to each side within {cutoff:g} Å: the op looks at {self._most_images}"
            )
        return needed


def images(cells: Array, cutoff: float) -> int:
    """Return how many images to each side of the nearest one are within the cutoff; 0 for cells of no volume."""
    volumes = np.abs(np.linalg.det(cells))
    areas = np.linalg.norm(np.cross(np.roll(cells, 1, axis=1), np.roll(cells, 2, axis=1)), axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = volumes[:, None] / areas
        needed = np.ceil(cutoff / heights - 0.5 - 1e-9)
    return int(np.max(needed, initial=0, where=np.isfinite(needed)))


def closed_cell(structure: Structure, cutoff: float | None) -> Array:
    """Return a cell whose images do not interact in the directions in which the structure does not repeat.

    Raises ``BadArgument`` for such a structure if the op has no cutoff.
    """
    cell, repeats = np.array(structure.cell, np.float64), np.array(structure.periodic, bool)
    if repeats.all():
        return cell
    if cutoff is None:
        raise BadArgument("expected a structure that repeats in all directions, since the op has no attribute cutoff")
    # The rows of the last factor that belong to no periodic vector are orthogonal to all of them.
    others = np.linalg.svd(np.where(repeats[:, None], cell, 0.0))[2][repeats.sum() :]
    extents = np.ptp(structure.positions @ others.T, axis=0) if len(structure.positions) else np.zeros(len(others))
    cell[~repeats] = others * np.maximum(extents + cutoff, 2 * cutoff)[:, None]
    return cell
