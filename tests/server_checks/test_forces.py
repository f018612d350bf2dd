"""Planted mistakes in the forces and the stress of a potential, and in the Jacobian of forces, are found."""

from functools import cached_property
from typing import Any

import numpy as np
import pytest

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument
from pullback.gradcheck.function import Point
from pullback.gradcheck.of.ase import AseModel, factory
from pullback.gradcheck.of.structures import SYMMETRIC, VOIGT, Numbers, StructureModel, strains_within
from tests.server_checks.models import check, failed

SITES = 1.2 * np.array([[0, 0, 0], [1, 0.2, 0], [0.1, 1, 0.3], [0, 0.2, 1]])
CELL = np.array([[3.0, 0, 0], [0.4, 3.0, 0], [0, 0.3, 3.0]])
SHIFTS = np.array(list(np.ndindex(3, 3, 3))) - 1


class Counted(StructureModel):
    """A model that notes its calls."""

    @cached_property
    def calls(self) -> list[str]:
        return []

    def values(self, point: Point) -> Any:
        self.calls.append("values")
        return super().values(point)

    def vjp(self, *arguments: Any) -> Any:
        self.calls.append("vjp")
        return super().vjp(*arguments)


class Springs(Counted):
    """Gaussian wells between atoms and their images: forces and stress are exact.

    With other ``widths``, wells know the axes of the laboratory.
    """

    widths = np.ones(3)

    def __init__(self, spoil: str = "", **how: Any) -> None:
        super().__init__("springs", SITES, CELL, **{"has_stress": True, **how})
        self.spoil, self._rng = spoil, np.random.default_rng(0)

    def compute(self, positions: Array, cell: Array) -> Numbers:
        apart = positions[None, :, None] - positions[:, None, None] + SHIFTS @ cell
        wells = -np.exp(-np.sum(self.widths * apart**2, -1) / 2)
        slopes = -wells[..., None] * self.widths * apart
        forces, virial = np.sum(slopes, (1, 2)), np.einsum("ijma,ijmb->ab", slopes, apart) / 2
        # As ASE has it, six numbers.
        virial = (virial + virial.T) / 2
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


class InField(Springs):
    """Wells that are not round: their energy changes as the structure is turned, but has a symmetric stress."""

    widths = np.array([1.0, 1.6, 0.7])


@pytest.mark.parametrize("seed", range(3))
def test_a_right_stress_in_the_frame_of_the_laboratory_passes(seed: int) -> None:
    document = check(InField(), 1000, seed)
    assert document["verdict"] == "pass", document["sentence"]
    assert "derivative" in failed(check(InField("shear"), 1000, seed))
    assert not failed(check(InField("single precision"), 300, seed))


class CountedAse(AseModel, Counted):
    """A model of a calculator that notes its calls."""


class Slab:
    """A structure and its calculator, with the methods of ASE: wells that repeat in some directions."""

    implemented_properties = ("energy", "forces", "stress")

    def __init__(self, cell: Array, pbc: tuple[bool, bool, bool], factor: float = 1.0, *, raises: bool = False) -> None:
        self.pbc, self.factor, self.raises = np.array(pbc), factor, raises
        self.calc, self._numbers = self, Springs()
        self.positions, self.cell = SITES, cell

    def copy(self) -> "Slab":
        return self

    def get_positions(self) -> Array:
        return self.positions

    def get_cell(self) -> Array:
        return self.cell

    def set_positions(self, positions: Array) -> None:
        self.positions = positions

    def set_cell(self, cell: Array) -> None:
        self.cell = cell

    def reset(self) -> None:
        pass

    def get_property(self, name: str, atoms: "Slab") -> Any:
        # Images that do not repeat are too far to count.
        far = np.where(atoms.pbc, 1.0, 1e3)
        energy, forces, virial = self._numbers.compute(atoms.positions, atoms.cell * far[:, None])
        if name == "stress" and self.raises:
            raise NotImplementedError(name)
        stress = self.factor * virial / np.linalg.det(atoms.cell)
        in_plane = np.where(atoms.pbc, 1, 0)
        stress = stress * np.outer(in_plane, in_plane)  # other numbers mean nothing, and some calculators have 0
        numbers = [stress[i, j] for i, j in VOIGT]
        return {"energy": energy, "forces": forces, "stress": np.array(numbers)}[name]


@pytest.mark.parametrize("pbc", [(True, True, True), (True, True, False), (False, True, False)])
def test_the_stress_is_checked_in_the_directions_that_repeat(pbc: tuple[bool, bool, bool], monkeypatch) -> None:
    def of(*arguments: Any, **how: Any) -> AseModel:
        monkeypatch.setattr(
            "pullback.gradcheck.of.ase.factory", lambda target: lambda: Slab(cell, pbc, *arguments, **how)
        )
        return CountedAse("slabs:slab")

    cell = np.where(np.array(pbc)[:, None] & np.array(pbc), CELL, 0) + np.diag(np.where(pbc, 0, 3.0))
    right = check(of(), 1000)
    assert right["verdict"] == "pass", right["sentence"]
    assert any(entry["input"] == "strain" for entry in right["checks"])
    assert ("in the directions that repeat" in right["scope"]) is not all(pbc)
    assert "derivative" in failed(check(of(1 / 18), 1000))
    if not all(pbc):
        assert "no stress here" in check(of(raises=True), 300)["scope"]


def test_strains_stretch_what_repeats_alone() -> None:
    tilted = np.array([[1.0, 0, 1], [0, 2, 0]])
    for strain in strains_within(tilted):
        assert np.allclose(strain, strain.T)
        assert np.allclose(strain @ [1, 0, -1], 0)
    assert len(strains_within(tilted)) == 3
    assert np.array_equal(strains_within(CELL), SYMMETRIC)
    assert len(strains_within(CELL[:0])) == 0
