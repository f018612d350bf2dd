"""The energies of ``docs/examples/forces`` over HTTP: padding cannot leak, and bad structures are refused."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pullback
from pullback.ipi_driver import Species, drive
from pullback.ipi_socket import BOHR, HARTREE, Channel
from pullback.structures import Evaluation, Potential, Structure, closed_cell, images
from tests import ipi_peers
from tests.conftest import ROOT, Serve

FORCES = ROOT / "docs" / "examples" / "forces"
SITES = 3.7 * np.array(list(np.ndindex(2, 2, 2)), float)
OPS = ("pair_energy", "neural_energy")


@pytest.fixture(scope="module")
def client(serve_for_module: Serve) -> Iterator[pullback.Client]:
    with pullback.Client(serve_for_module(OPS_PATH=str(FORCES)).url, timeout=600) as one:
        yield one


def structure(atoms: int, seed: int = 0) -> Structure:
    rng = np.random.default_rng(seed)
    positions = SITES[:atoms] + rng.uniform(-0.3, 0.3, (atoms, 3))
    return Structure(positions, 7.4 * np.eye(3) + rng.uniform(-0.2, 0.2, (3, 3)), rng.choice([10, 18, 36], atoms))


@pytest.mark.parametrize("op", OPS)
def test_padding_cannot_leak(client: pullback.Client, op: str) -> None:
    structures = [structure(8), structure(3, 1), structure(5, 2)]
    inputs = {
        "positions": np.full((3, 8, 3), np.nan),
        "cell": np.stack([one.cell for one in structures]),
        "species": np.zeros((3, 8), np.int32),
        "strain": np.zeros((3, 3, 3)),
    }
    for i, one in enumerate(structures):
        inputs["positions"][i, : len(one.species)], inputs["species"][i, : len(one.species)] = (
            one.positions,
            one.species,
        )
    absent = inputs["species"] == 0
    found = []
    for filling in (np.nan, np.inf, 1e300, 0.0, inputs["positions"][0, 0]):
        inputs["positions"][absent] = filling
        at = client.op(op).vjp(inputs, outputs=True)
        found.append(
            b"".join(x.tobytes() for x in (at.outputs["energy"], *map(at.gradients.get, ("positions", "strain"))))
        )
        assert not at.gradients["positions"][absent].any()
        assert np.isfinite(at.gradients["positions"]).all()
    assert len(set(found)) == 1
    for one, alone in zip(structures, Potential(client.op(op)).evaluate(structures), strict=True):
        assert_same(alone, Potential(client.op(op)).evaluate([one])[0])
        assert alone.forces.shape == one.positions.shape


def test_a_mode_is_that_of_every_request(client: pullback.Client) -> None:
    one, op = structure(4), client.op("pair_energy")
    for found, expected in zip(*(Potential(op, None, mode).evaluate([one]) for mode in ("xla", None)), strict=True):
        assert_same(found, expected)
    wrong = Potential(op, {"cutoff": 6.0}, "fast")
    for ask in (lambda: wrong.evaluate([one]), lambda: wrong.hessian_products(one, np.ones((1, 4, 3)))):
        with pytest.raises(pullback.Unprocessable, match="mode"):
            ask()


def assert_same(one: Evaluation, other: Evaluation) -> None:
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"species": [[0, 0]]}, "inputs.species.0: a structure without atoms"),
        ({"species": [[18, 19]]}, "argon (18), krypton (36), or 0 for no atom, got the atomic number 19"),
        ({"species": [[18, -1]]}, "inputs.species.0.1: unknown species"),
        ({"positions": [[[0, 0, 0], [0, 9, 0]]]}, "inputs.positions.0.1: two atoms at one place"),
        ({"positions": [[[0, 0, 0], ["NaN", 9, 0]]]}, "inputs.positions.0.1: an atom without a position"),
        ({"cell": [[[9, 0, 0], [0, 9, 0], [9, 9, 0]]]}, "inputs.cell.0: a cell of no volume"),
        ({"cell": [[[0, 0, 0]] * 3]}, "inputs.cell.0: a cell of no volume"),
        (
            {"species": [[18] * 400], "positions": np.zeros((1, 400, 3))},
            "inputs.species: too many pairs of atoms and images",
        ),
        ({"species": np.zeros((1, 0), np.int32), "positions": np.zeros((1, 0, 3))}, "a structure without atoms"),
        ({"cell": [[[9, 0, 0], [0, 9, 0], [0, 0, 2]]]}, "expected images of at least 3 for a cutoff of 6"),
    ],
)
@pytest.mark.parametrize("op", OPS)
def test_bad_structures_are_refused(client: pullback.Client, op: str, change: dict, message: str) -> None:
    good = {"positions": [[[0, 0, 0], [3, 0, 0]]], "cell": [(9 * np.eye(3)).tolist()], "species": [[18, 18]]}
    with pytest.raises(pullback.Unprocessable) as refused:
        client.op(op).vjp({**good, "strain": [np.zeros((3, 3)).tolist()], **change})
    assert message in str(refused.value)


def test_an_empty_list_and_another_op_are_refused(client: pullback.Client) -> None:
    with pytest.raises(pullback.BadArgument, match="at least one structure"):
        Potential(client.op("pair_energy")).evaluate([])
    with pytest.raises(pullback.BadArgument, match="op square: expected inputs"):
        Potential(client.op("square")).evaluate([structure(2)])
    primitive = Structure(np.zeros((1, 3)), 2.2 * np.eye(3), np.array([18]))
    with pytest.raises(pullback.BadArgument, match=r"a larger cell .*, or a smaller cutoff, got a cell with 3 images"):
        Potential(client.op("pair_energy")).evaluate([primitive])


def test_cells_are_closed_in_directions_that_do_not_repeat() -> None:
    one, cell = structure(8), np.array([[5.0, 0, 0], [1, 5, 0], [0, 2, 5]])
    for periodic in ((True, True, True), (True, False, True), (False, False, True), (False, False, False)):
        closed = closed_cell(one._replace(cell=cell, periodic=periodic), 6.0)
        np.testing.assert_array_equal(closed[list(periodic)], cell[list(periodic)])
        heights = 1 / np.linalg.norm(np.linalg.inv(closed), axis=0)
        assert (heights[~np.array(periodic)] >= 12).all()
        assert images(closed[None], 6.0) == max(0, np.ceil(6 / heights.min() - 0.5))
    with pytest.raises(pullback.BadArgument, match="repeats in all directions"):
        closed_cell(one._replace(periodic=(True, True, False)), None)
    assert images(np.zeros((1, 3, 3)), 6.0) == 0


def test_a_driver_of_ipi_answers_with_the_numbers_of_the_op(client: pullback.Client) -> None:
    """The cell of i-PI has vectors in columns, and its virial is minus the gradient in the strain."""
    structures = [structure(8, seed) for seed in range(3)]
    potential, numbers = Potential(client.op("pair_energy")), structures[0].species
    of_atoms = [one._replace(species=numbers) for one in structures]
    # The last has directions that do not repeat: their vectors are 0.
    of_atoms.append(of_atoms[0]._replace(cell=np.diag([9.0, 0, 0]), periodic=[True, False, False]))
    for batch in (of_atoms[:1], of_atoms[1:3], of_atoms[3:]):
        ours, theirs = socket.socketpair()
        with ours, theirs, ThreadPoolExecutor(1) as pool:
            done = pool.submit(drive, Channel(theirs, "the server", 60), potential, Species(numbers.tolist()))
            found = ipi_peers.ask(ours, [one.cell / BOHR for one in batch], [one.positions / BOHR for one in batch])
            ours.sendall(b"EXIT        ")
            assert done.result(60) == len(batch)
        for (energy, forces, virial), expected in zip(found, potential.evaluate(batch), strict=True):
            in_ev = Evaluation(energy * HARTREE, forces * HARTREE / BOHR, -virial.T * HARTREE)
            for mine, theirs in zip(in_ev, expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-13)


def test_what_the_service_refuses_ends_a_driver(client: pullback.Client) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        potential, of_atoms = Potential(client.op("pair_energy")), Species([18], are_all_alike=True)
        done = pool.submit(drive, Channel(theirs, "the server", 60), potential, of_atoms)
        ours.sendall(b"POSDATA     " + (9 * np.eye(3)).tobytes() + bytes(72) + b"\2\0\0\0" + bytes(48))
        with pytest.raises(pullback.Unprocessable, match="two atoms at one place"):
            done.result(60)


@pytest.mark.thorough
@pytest.mark.parametrize("op", ["pair_energy", "neural_energy"])
def test_the_pages_pass_their_checks(client: pullback.Client, op: str) -> None:
    report = client.op(op).check(dtypes=["float64"], modes=["graph"], orders=[1], checks=["value", "derivative"])
    assert report.verdict == "pass"
