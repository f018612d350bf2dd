"""The calculator of ASE: forces, stress, molecular dynamics, relaxation and vibrations, by energies of a service."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.fd import calculate_numerical_forces, calculate_numerical_stress
from ase.calculators.lj import LennardJones
from ase.md.verlet import VelocityVerlet
from ase.vibrations import Vibrations, VibrationsData

import pullback
from pullback.ase import Calculator

OPS = ("pair_energy", "neural_energy")


def argon(**how) -> Atoms:
    atoms = bulk("Ar", "fcc", 5.3, cubic=True)
    atoms.rattle(0.1, seed=1)
    atoms.calc = Calculator(**how)
    return atoms


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("periodic", [(1, 1, 1), (0, 0, 0), (1, 1, 0), (0, 1, 0)])
def test_forces_and_stress_are_those_of_the_energy(url: str, op: str, periodic: tuple[int, ...]) -> None:
    atoms = argon(op=op, url=url)
    atoms.set_cell(atoms.cell.array + np.array([[0, 0.3, 0], [0, 0, 0.2], [0.1, 0, 0]]))
    atoms.pbc = periodic
    np.testing.assert_allclose(atoms.get_forces(), calculate_numerical_forces(atoms), atol=1e-8)
    if all(periodic):
        np.testing.assert_allclose(atoms.get_stress(), calculate_numerical_stress(atoms), atol=1e-9)
    else:
        assert "stress" not in atoms.calc.results


def test_a_cluster_has_the_numbers_of_ase(url: str) -> None:
    """All distances are before the switch begins, so both are the same function."""
    rng = np.random.default_rng(0)
    atoms = Atoms("Ar4", positions=rng.uniform(0, 1, (4, 3)) + 2.5 * np.arange(4)[:, None])
    theirs = atoms.copy()
    atoms.calc = Calculator("pair_energy", url, cutoff=20.0)
    theirs.calc = LennardJones(epsilon=0.01042, sigma=3.4, rc=1e5)
    assert atoms.get_potential_energy() == pytest.approx(theirs.get_potential_energy(), rel=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), theirs.get_forces(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("op", OPS)
def test_the_total_energy_is_conserved(url: str, op: str) -> None:
    """The error of this integrator falls with the square of the step if the forces are those of the energy."""
    drifts: list[float] = []
    for step in (8.0, 4.0):
        atoms, energies = argon(op=op, url=url), list[float]()
        dynamics = VelocityVerlet(atoms, step * units.fs)
        dynamics.attach(lambda atoms=atoms, energies=energies: energies.append(atoms.get_total_energy()))
        dynamics.run(int(400 / step))
        drifts.append(np.ptp(energies))
    assert 3 < drifts[0] / drifts[1] < 5


def test_vibrations_are_those_of_finite_displacements(url: str, tmp_path: Path) -> None:
    atoms = argon(op="pair_energy", url=url)
    hessian = VibrationsData(atoms, atoms.calc.get_hessian(atoms)).get_hessian_2d()
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    theirs = Vibrations(atoms, name=str(tmp_path / "moved"), delta=1e-3)
    theirs.run()
    np.testing.assert_allclose(hessian, theirs.get_vibrations().get_hessian_2d(), atol=1e-4)


def test_structures_of_different_sizes_share_a_request(url: str, count) -> None:
    calculator = Calculator("pair_energy", url)
    structures = [bulk("Ar", "fcc", 5.3, cubic=True) * (1, 1, n) for n in (1, 2, 3)] + [
        Atoms("ArKr", [(0, 0, 0), (3.5, 0, 0)])
    ]
    for i, atoms in enumerate(structures):
        atoms.rattle(0.1, seed=i)
    count()
    together = calculator.evaluate(structures)
    assert count() == 1
    for atoms, found in zip(structures, together, strict=True):
        alone = calculator.evaluate([atoms])[0]
        assert found["forces"].shape == (len(atoms), 3)
        np.testing.assert_allclose(found["forces"], alone["forces"], atol=1e-15)
        assert found["energy"] == pytest.approx(alone["energy"], rel=1e-13)


def test_copies_work(url: str) -> None:
    atoms = argon(op="pair_energy", url=url)
    energy = atoms.get_potential_energy()
    for one in (copy.deepcopy(atoms.calc), pickle.loads(pickle.dumps(atoms.calc))):
        one.reset()
        assert one.get_potential_energy(atoms) == energy


def test_an_op_that_is_no_energy_is_refused(url: str) -> None:
    with pytest.raises(pullback.BadArgument, match="op square: expected inputs"):
        argon(op="square", url=url).get_forces()
    atoms = argon(op="pair_energy", url=url)
    atoms.positions[1] = atoms.positions[0]
    with pytest.raises(pullback.Unprocessable, match="two atoms at one place"):
        atoms.get_forces()
