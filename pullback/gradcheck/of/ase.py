"""Calculators of ASE, or of the same methods, as models: ``ase+module:factory``."""

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadArgument, ModelFailed
from pullback.gradcheck.of.structures import Numbers, StructureModel, strains_within


class AseModel(StructureModel):
    """The calculator that a factory returns, at the structure that is its ``atoms``, or that of atoms with one."""

    def __init__(self, target: str) -> None:
        """Call the factory, in a module of the current folder or of the path. Raises ``BadArgument``."""
        made, self._name = factory(target)(), f"ase+{target}"
        self._calculator, atoms = (made.calc, made) if hasattr(made, "calc") else (made, getattr(made, "atoms", None))
        if atoms is None or self._calculator is None:
            expected = "a calculator with its own atoms, or atoms with a calculator"
            raise BadArgument(f"ase+{target}: expected the factory to return {expected}, got {type(made).__name__}")
        self._atoms = atoms.copy()
        known = self._calculator.implemented_properties
        self._energy = "free_energy" if "free_energy" in known else "energy"
        positions, cell = np.array(atoms.get_positions(), float), np.array(atoms.get_cell()[:], float)
        periodic = cell[np.array(atoms.pbc, bool)]
        self.strains = strains_within(periodic)
        self._has_stress = "stress" in known and bool(len(self.strains)) and bool(np.linalg.det(cell))
        if self._has_stress and len(periodic) < len(cell):
            # Many calculators have a stress only where all directions repeat.
            with suppress(ModelFailed):
                self._has_stress = False
                self._has_stress = self._numbers(positions, cell, with_stress=True).virial is not None
        super().__init__(self._name, positions, cell, has_stress=self._has_stress)
        if not self._has_stress:
            self.remark = "The calculator has no stress here: only forces were checked."
        elif len(periodic) < len(cell):
            self.remark = "The stress was checked in the directions that repeat."

    def compute(self, positions: Array, cell: Array) -> Numbers:
        """Return the calculator's numbers; an exception of it is ``ModelFailed``."""
        return self._numbers(positions, cell, with_stress=self._has_stress)

    def _numbers(self, positions: Array, cell: Array, *, with_stress: bool) -> Numbers:
        calculator, atoms = self._calculator, self._atoms
        atoms.set_cell(cell)
        atoms.set_positions(positions)
        try:
            calculator.reset()
            energy = float(calculator.get_property(self._energy, atoms))
            forces = np.array(calculator.get_property("forces", atoms), float)
            if not with_stress:
                return Numbers(energy, forces)
            xx, yy, zz, yz, xz, xy = np.array(calculator.get_property("stress", atoms), float)
        except Exception as error:
            raise ModelFailed(f"{self._name}: {type(error).__name__}: {error}"[:500]) from error
        stress = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        return Numbers(energy, forces, stress * abs(np.linalg.det(cell)))


def factory(target: str) -> Callable[[], Any]:
    """Return the function that ``module:function`` names; raise ``BadArgument`` if there is none."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise BadArgument(f"expected ase+MODULE:FACTORY, got ase+{target}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise BadArgument(
            f"ase+{target}: expected a module with {name}, got {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(found):
        raise BadArgument(f"ase+{target}: expected a function, got {type(found).__name__}")
    return found
