"""``pullback ipi`` as a driver of i-PI and of ASE, and ``pullback check ipi+...`` with the drivers of both."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.socketio import SocketIOCalculator
from ase.io import write

from pullback.ase import Calculator

PAGE = Path(__file__).parents[2] / "docs" / "forces.md"
PROGRAM, INPUT = re.search(
    r"<!-- ipi -->\n```py\n(.*?)```.*?```xml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
).groups()
BIN = Path(sys.executable).parent
PULLBACK = [sys.executable, "-P", "-m", "pullback"]
BAD_DRIVER = """
import numpy as np
from ipi.pes.dummy import Dummy_driver

__DRIVER_NAME__, __DRIVER_CLASS__ = "custom", "Wells"


class Wells(Dummy_driver):
    def __init__(self, spoil):
        super().__init__()
        self.spoil = spoil

    def compute_structure(self, cell, pos):
        apart = pos[None] - pos[:, None]
        deep = -np.exp(-np.sum(apart**2, -1) / 50)
        slopes = -deep[..., None] * apart / 25
        forces, virial = slopes.sum(1), -np.einsum("ija,ijb->ab", slopes, apart) / 2
        if self.spoil == "curl":
            forces = forces + 0.003 * np.roll(pos, 1, axis=1) * [1, -1, 0]
        return deep.sum() / 2, forces, 2 * virial if self.spoil == "virial" else virial, ""
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen]:
    """Start a process in the folder of the test, and end it with the test."""
    started: list[subprocess.Popen] = []

    def run(*command: str | Path) -> subprocess.Popen:
        log = (tmp_path / f"{len(started)}.log").open("w+")
        started.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, text=True))
        started[-1].log = log
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait(20)
        process.log.close()


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """Return the exit code of a process and what it printed."""
    code = process.wait(120)
    process.log.seek(0)
    return code, process.log.read()


def appears(path: Path) -> None:
    """Wait for a file, such as a Unix socket, for which i-PI's own drivers do not wait."""
    for _ in range(300):
        if path.exists():
            return
        time.sleep(0.1)


def argon() -> Atoms:
    atoms = bulk("Ar", "fcc", 5.3, cubic=True) * (2, 2, 2)
    atoms.rattle(0.1, seed=1)
    return atoms


def write_input(folder: Path) -> Path:
    """Write the input of the page, for a socket in the folder of the test, and return the path of that."""
    place = folder / "socket"
    (folder / "input.xml").write_text(INPUT.replace("<address>argon<", f"<address>{place}<"))
    # What the page says on init.xyz, with other positions.
    program = PROGRAM.replace("* (2, 2, 2)\n", "* (2, 2, 2)\natoms.rattle(0.1, seed=1)\n")
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=60)
    return place


def test_stock_ipi_moves_the_beads_of_the_page(url: str, start, count, tmp_path: Path) -> None:
    """Its energies and forces are those of the calculator, a step is one request, and the total energy is conserved."""
    place = write_input(tmp_path)
    count()
    driver = start(
        *PULLBACK,
        "ipi",
        "pair_energy",
        "cutoff=8",
        "--unix",
        place,
        "--species",
        "@init.xyz",
        "--url",
        url,
        "--wait",
        "30",
    )
    server = start(BIN / "i-pi", "-S", "", "input.xml")
    code, log = ended(driver)
    assert (code, log) == (0, "i-PI ended after 84 structures\n"), ended(server)
    assert ended(server)[0] == 0
    assert count() == 21
    _, conserved, potential = np.loadtxt(tmp_path / "argon.energies", unpack=True)
    assert np.ptp(conserved) < 1e-4
    assert np.ptp(potential) > 1e-3
    calculator = Calculator("pair_energy", url, cutoff=8.0)
    energies = np.zeros(2)
    for bead in range(4):
        places, forces = (read_frames(tmp_path / f"argon.{name}_{bead}.xyz") for name in ("positions", "forces"))
        for i, step in enumerate((0, 2)):
            atoms = argon()
            atoms.positions = places[step]
            found = calculator.evaluate([atoms])[0]
            energies[i] += found["energy"] / 4
            # i-PI prints six digits, and rounds its unit of length.
            np.testing.assert_allclose(forces[step], found["forces"], atol=1e-5)
    np.testing.assert_allclose(potential[[0, 20]], energies, atol=1e-5)


def read_frames(path: Path) -> list[np.ndarray]:
    lines = path.read_text().splitlines()
    size = int(lines[0]) + 2
    return [
        np.array([line.split()[1:4] for line in lines[i + 2 : i + size]], float) for i in range(0, len(lines), size)
    ]


@pytest.mark.parametrize("periodic", [True, False])
def test_ase_is_a_server_too(url: str, start, periodic: bool) -> None:
    atoms, name = argon(), f"pullback_{time.time_ns()}"
    if not periodic:
        atoms.set_cell(np.zeros((3, 3)))
        atoms.pbc = False
    expected = Calculator("neural_energy", url).evaluate([atoms])[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = ("--host", f"localhost:{port}") if periodic else ("--unix", name)
    driver = start(*PULLBACK, "ipi", "neural_energy", *place, "--species", "Ar32", "--url", url, "--wait", "30")
    with SocketIOCalculator(**({"port": port} if periodic else {"unixsocket": name})) as calculator:
        atoms.calc = calculator
        np.testing.assert_allclose(atoms.get_forces(), expected["forces"], rtol=1e-7, atol=1e-9)
        assert atoms.get_potential_energy() == pytest.approx(expected["energy"], rel=1e-7)
        if periodic:
            np.testing.assert_allclose(atoms.get_stress(), expected["stress"], rtol=1e-6, atol=1e-11)
    code, log = ended(driver)
    assert code == 2
    assert "closed the connection without EXIT" in log


def test_what_the_service_refuses_ends_the_driver_and_not_ipi(url: str, start, tmp_path: Path) -> None:
    place = write_input(tmp_path)
    command = [*PULLBACK, "ipi", "pair_energy", "--unix", place, "--url", url, "--wait", "30", "--species"]
    drivers = [start(*command, species) for species in ("Xe", "Ar31")]
    server = start(BIN / "i-pi", "-S", "", "input.xml")
    for driver, expected in zip(drivers, ("inputs.species", "expected the 31 atoms of --species"), strict=True):
        code, log = ended(driver)
        assert code == 2
        assert expected in log
    # i-PI waits for a driver that is right.
    assert ended(start(*command, "Ar")) == (0, "i-PI ended after 84 structures\n")
    assert ended(server)[0] == 0


def check(start, folder: Path, structure: Atoms, *driver: str | Path) -> tuple[int, str]:
    """Run ``pullback check ipi+...`` with a driver; return its exit code and what it printed."""
    document = {"positions": structure.positions.tolist(), "cell": structure.cell.array.tolist()}
    (folder / "structure.json").write_text(json.dumps(document))
    target = f"ipi+unix:{folder / 'socket'}"
    found = start(*PULLBACK, "check", target, "--config", "@structure.json", "--budget", "300")
    appears(folder / "socket")
    start(*driver)
    return ended(found)


def test_drivers_are_checked(url: str, start, tmp_path: Path) -> None:
    atoms = bulk("Ar", "fcc", 5.3, cubic=True)
    atoms.rattle(0.1, seed=1)
    mine = [
        *PULLBACK,
        "ipi",
        "pair_energy",
        "--unix",
        tmp_path / "socket",
        "--species",
        "Ar",
        "--url",
        url,
        "--wait",
        "30",
    ]
    code, log = check(start, tmp_path, atoms, *mine)
    assert code == 0, log
    assert "pass (8 passed" in log


@pytest.mark.parametrize(
    ("spoil", "status", "finds"),
    [
        ("none", 0, []),
        ("curl", 1, ["derivative, denergy/ddisplacements", "symmetry, denergy/ddisplacements"]),
        ("virial", 1, ["derivative, denergy/dstrain"]),
    ],
)
def test_drivers_of_ipi_are_checked(start, tmp_path: Path, spoil: str, status: int, finds: list[str]) -> None:
    (tmp_path / "wells.py").write_text(BAD_DRIVER)
    driver = (BIN / "i-pi-driver-py", "-u", "-S", "", "-a", tmp_path / "socket", "-m", "custom", "-P", "wells.py")
    code, log = check(start, tmp_path, bulk("Ar", cubic=True), *driver, "-o", spoil)
    assert code == status, log
    assert [line for line in log.splitlines() if line.startswith("FAIL")] == [
        next(line for line in log.splitlines() if line.startswith("FAIL") and each in line) for each in finds
    ]


def test_drivers_of_ase_are_checked(start, tmp_path: Path) -> None:
    """ASE's Lennard-Jones is cut off, with a smooth end."""
    write(tmp_path / "atoms.xyz", bulk("Ar", cubic=True))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = f"""
import time
from ase.io import read
from ase.calculators.lj import LennardJones
from ase.calculators.socketio import SocketClient
atoms = read("atoms.xyz")
atoms.calc = LennardJones(epsilon=0.01042, sigma=3.4, rc=9.0, ro=6.0, smooth=True)
for _ in range(300):
    try:
        client = SocketClient(host="127.0.0.1", port={port})
        break
    except OSError:
        time.sleep(0.1)
client.run(atoms, use_stress=True)
"""
    atoms = bulk("Ar", cubic=True)
    document = {"positions": atoms.positions.tolist(), "cell": atoms.cell.array.tolist()}
    (tmp_path / "structure.json").write_text(json.dumps(document))
    start(sys.executable, "-c", program)
    target = f"ipi+127.0.0.1:{port}"
    code, log = ended(start(*PULLBACK, "check", target, "--config", "@structure.json", "--budget", "100"))
    assert code == 0, log
