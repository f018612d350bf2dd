"""Energies of a service as calculators of ASE: relaxations, molecular dynamics, phonons.

::

    from pullback.ase import Calculator

    atoms.calc = Calculator("pair_energy", url="http://127.0.0.1:8000", cutoff=8.0)
    atoms.get_forces()
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators import calculator
from ase.stress import full_3x3_to_voigt_6_stress

from pullback.client import Client
from pullback.structures import Evaluation, Potential, Structure

__all__ = ["Calculator"]


class Calculator(calculator.Calculator):
    """An op like ``docs/examples/forces/pair_energy.py`` as a calculator: energy, forces and stress in one request.

    ``url`` and ``api_key`` are those of ``pullback.Client``, or ``client`` is one that you keep. ``mode`` is graph,
    eager, xla or v1, by default the op's; ``attrs`` are the op's attributes. A structure without periodic directions,
    or with some, has no stress. Raises ``PullbackError``.
    """

    implemented_properties = ("energy", "free_energy", "forces", "stress")

    def __init__(
        self,
        op: str,
        url: str | None = None,
        *,
        api_key: str | None = None,
        client: Client | None = None,
        mode: str | None = None,
        **attrs: Any,
    ) -> None:
        """Set the op; this sends nothing."""
        super().__init__()
        self.potential = Potential((client or Client(url, api_key=api_key)).op(op), attrs, mode)

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = calculator.all_changes,
    ) -> None:
        """Evaluate the energy, the forces and the stress."""
        super().calculate(atoms, properties, system_changes)
        self.results = self.evaluate([self.atoms])[0]

    def evaluate(self, structures: Sequence[Atoms]) -> list[Mapping[str, Any]]:
        """Return the results of structures of any sizes, with one request: energy, forces and stress of each."""
        found = self.potential.evaluate([_structure(atoms) for atoms in structures])
        return [_results(atoms, one) for atoms, one in zip(structures, found, strict=True)]

    def hessian_products(self, atoms: Atoms, vectors: np.ndarray) -> np.ndarray:
        """Return the products (K, N, 3) of the Hessian of the energy and displacements (K, N, 3), in eV/Å²."""
        return self.potential.hessian_products(_structure(atoms), np.asarray(vectors, np.float64))

    def get_hessian(self, atoms: Atoms) -> np.ndarray:
        """Return the second derivative (N, 3, N, 3) of the energy, as ``ase.vibrations.VibrationsData`` takes it."""
        n = len(atoms)
        return self.hessian_products(atoms, np.eye(3 * n).reshape(-1, n, 3)).reshape(n, 3, n, 3)


def _structure(atoms: Atoms) -> Structure:
    return Structure(atoms.get_positions(), atoms.cell.array, atoms.get_atomic_numbers(), atoms.pbc)


def _results(atoms: Atoms, found: Evaluation) -> Mapping[str, Any]:
    results = {"energy": found.energy, "free_energy": found.energy, "forces": found.forces}
    if all(atoms.pbc):
        results["stress"] = full_3x3_to_voigt_6_stress(found.virial / atoms.get_volume())
    return results
