"""Planted mistakes in the forces and the stress of a potential, and in the Jacobian of forces, are found."""

from typing import Any

import numpy as np
import pytest

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument
from pullback.server_checks.ase import factory
from pullback.server_checks.model import Point
from pullback.server_checks.structures import Numbers, StructureModel
from tests.server_checks.models import check, failed

SITES = 1.2 * np.array([[0, 0, 0], [1, 0.2, 0], [0.1, 1, 0.3], [0, 0.2, 1]])
CELL = np.array([[3.0, 0, 0], [0.4, 3.0, 0], [0, 0.3, 3.0]])
SHIFTS = np.array(list(np.ndindex(3, 3, 3))) - 1


class Springs(StructureModel):
    """Gaussian wells between atoms and their images: forces and stress are exact."""

    def __init__(self, spoil: str = "", **how: Any) -> None:
        super().__init__("springs", SITES, CELL, **{"has_stress": True, **how})
        self.calls: list[str] = []
        self.spoil, self._rng = spoil, np.random.default_rng(0)

    def compute(self, positions: Array, cell: Array) -> Numbers:
        apart = positions[None, :, None] - positions[:, None, None] + SHIFTS @ cell
        wells = -np.exp(-np.sum(apart**2, -1) / 2)
        slopes = -wells[..., None] * apart
        forces, virial = np.sum(slopes, (1, 2)), np.einsum("ijma,ijmb->ab", slopes, apart) / 2
        energy = np.sum(wells) / 2
        return self._spoiled(positions, energy, forces, virial)

    def _spoiled(self, positions: Array, energy: float, forces: Array, virial: Array) -> Numbers:
        match self.spoil:
            case "one force":
                forces[2, 1] *= 1.01
            case "sign of the stress":
                virial = -virial
            case "volume":
                virial = virial / np.linalg.det(CELL)
            case "shear":
                virial = np.diag(np.diag(virial))
            case "curl":
                forces += 0.02 * np.roll(positions, 1, axis=1) * [1, -1, 0]
            case "random":
                forces *= 1 + 0.01 * self._rng.standard_normal(forces.shape)
            case "single precision":
                energy, forces, virial = (np.asarray(x, np.float32) for x in (energy, forces, virial))
            case "shape":
                forces = forces[:3]
            case "NaN":
                forces[0] = np.nan
            case _:
                pass
        return Numbers(energy, forces, virial)

    def values(self, point: Point) -> Any:
        self.calls.append("values")
        return super().values(point)

    def vjp(self, *arguments: Any) -> Any:
        self.calls.append("vjp")
        return super().vjp(*arguments)


@pytest.mark.parametrize("budget", [1000, 300, 60, 20, 5])
def test_right_forces_do_not_fail(budget: int) -> None:
    document = check(Springs(), budget)
    assert document["verdict"] == "pass" or budget < 300, document["sentence"]
    assert not failed(document)
    assert not failed(check(Springs("single precision"), budget))
    assert not failed(check(Springs(has_stress=False), budget))


@pytest.mark.parametrize(
    ("spoil", "finds"),
    [
        ("one force", {"derivative"}),
        ("sign of the stress", {"derivative"}),
        ("volume", {"derivative"}),
        ("shear", {"derivative"}),
        ("curl", {"derivative", "symmetry"}),
        ("random", {"determinism"}),
        ("shape", {"contract"}),
    ],
)
def test_planted_mistakes_fail(spoil: str, finds: set[str]) -> None:
    assert finds <= failed(check(Springs(spoil), 1000))


def test_forces_that_are_not_finite_do_not_pass() -> None:
    assert check(Springs("NaN"), 300)["verdict"] != "pass"


def test_a_finding_names_the_structure() -> None:
    entry = next(e for e in check(Springs("sign of the stress"))["checks"] if e["verdict"] == "fail")
    assert entry["input"] == "strain"
    assert entry["reproduce"].startswith('springs at {"positions":[[')


@pytest.mark.parametrize("target", ["calculators", ":copper", "no_such_module:copper", "math:no_such", "math:pi"])
def test_a_factory_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(BadArgument, match="expected"):
        factory(target)


def test_a_structure_without_atoms_is_refused() -> None:
    with pytest.raises(BadArgument, match="at least one atom"):
        type(
            "Empty",
            (Springs,),
            {"__init__": lambda self: StructureModel.__init__(self, "empty", SITES[:0], CELL, has_stress=False)},
        )()
    with pytest.raises(BadAnswer):
        Springs().jvp(Springs().points([], 1, np.random.default_rng(0))[0], "strain", np.zeros(6), ["energy"])
