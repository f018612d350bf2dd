"""A driver of i-PI: energies, forces and virials are those of an op of a service."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument
from pullback.ipi_socket import BOHR, HARTREE, MAX_NUMBERS, Channel
from pullback.structures import Evaluation, Potential, Structure

ELEMENTS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts "
    "Og"
)
NUMBERS = {element: number for number, element in enumerate(re.findall("[A-Z][a-z]?", ELEMENTS), 1)}
PART = re.compile(r"([A-Z][a-z]?)([1-9][0-9]{0,6})?")
FORMULA = re.compile(f"({PART.pattern})+")
BATCH = re.compile(r"(?:^|,)\s*batch_size\s*:\s*([0-9]{1,9})\s*(?:,|$)")


class Species(NamedTuple):
    """The atomic numbers of atoms in their order, or one for all atoms."""

    numbers: Sequence[int]
    are_all_alike: bool = False

    def of(self, count: int) -> Array:
        """Return those of so many atoms; raise ``BadAnswer`` if there are others."""
        if self.are_all_alike:
            return np.full(count, self.numbers[0])
        if len(self.numbers) != count:
            raise BadAnswer(f"expected the {len(self.numbers)} atoms of --species, got {count} from the i-PI server")
        return np.array(self.numbers)


def species(text: str) -> Species:
    """Return the species of an element for all atoms (Ar), a formula (Ar4Kr2) or a file of i-PI (@init.xyz).

    Raises ``BadArgument``.
    """
    if text.startswith("@"):
        return Species([_number(line.split()[0]) for line in _lines_of_atoms(Path(text[1:]))])
    if not FORMULA.fullmatch(text):
        raise BadArgument(f"--species: expected an element, a formula or @FILE.xyz, got {text[:80]!r}")
    parts = [(_number(element), int(count or 1)) for element, count in PART.findall(text)]
    if len(parts) == 1 and text.isalpha():
        return Species([parts[0][0]], are_all_alike=True)
    if sum(count for _, count in parts) > MAX_NUMBERS:
        raise BadArgument(f"--species: expected at most {MAX_NUMBERS} atoms, got {text[:80]!r}")
    return Species([number for number, count in parts for _ in range(count)])


def drive(channel: Channel, potential: Potential, of_atoms: Species) -> int:
    """Answer an i-PI server until it sends EXIT; return the number of structures.

    All structures of a message are evaluated with one request. Raises ``PullbackError``: what the service refuses,
    messages that are not those of the protocol, and a connection that closes.
    """
    is_ready, batch, done, found = False, 1, 0, list[Evaluation]()
    while (header := channel.header(waits=True)) != "EXIT":
        if header == "STATUS":
            channel.send("HAVEDATA" if found else "READY" if is_ready else "NEEDINIT")
        elif header == "INIT":
            channel.integer()  # the replica, which changes nothing
            announced = BATCH.search(channel.text())
            is_ready, batch = True, max(1, int(announced[1])) if announced else 1
        elif header == "POSDATA":
            found = potential.evaluate(_structures(channel, batch, of_atoms))
            done += batch
        elif header == "GETFORCE" and found:
            _send(channel, found)
            found = []
        else:
            raise BadAnswer(f"{channel.peer}: expected a header of the protocol of i-PI, got {header!r}")
    return done


def _structures(channel: Channel, batch: int, of_atoms: Species) -> list[Structure]:
    """Return the structures of a message: a cell, its inverse, a count and positions; of several, the count first."""
    if batch == 1:
        cells, count = channel.numbers(1, 18), channel.integer()
        _check(channel, count, batch)
    else:
        count = channel.integer()
        _check(channel, count, batch)
        cells = channel.numbers(batch, 18)
    positions = channel.numbers(batch, count, 3) * BOHR
    numbers = of_atoms.of(count)
    # The inverse says nothing new. Other servers send 0 for the vectors of directions that do not repeat.
    rows = np.swapaxes(cells[:, :9].reshape(-1, 3, 3), 1, 2) * BOHR
    return [Structure(at, cell, numbers, cell.any(axis=1).tolist()) for at, cell in zip(positions, rows, strict=True)]


def _check(channel: Channel, count: int, batch: int) -> None:
    if count < 1 or (3 * count + 18) * batch > MAX_NUMBERS:
        expected = f"atoms, and at most {MAX_NUMBERS} numbers in a message"
        raise BadAnswer(f"{channel.peer}: expected {expected}, got {batch} structures of {count}")


def _send(channel: Channel, found: Sequence[Evaluation]) -> None:
    energies = np.array([each.energy for each in found]) / HARTREE
    forces = np.array([each.forces for each in found]) * (BOHR / HARTREE)
    virials = -np.array([each.virial.T for each in found]) / HARTREE
    channel.send("FORCEREADY", energies, forces.shape[1], forces, virials, *[0] * len(found))


def _lines_of_atoms(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        atoms = lines[2 : 2 + int(lines[0])]
        if not atoms or len(atoms) < int(lines[0]) or any(len(line.split()) < 4 for line in atoms):  # noqa: PLR2004
            raise ValueError("expected a count, a comment and a line with an element and a position for each atom")
    except (OSError, ValueError, IndexError) as error:
        raise BadArgument(f"--species: cannot read the atoms of {path}: {error}") from error
    return atoms


def _number(element: str) -> int:
    if element not in NUMBERS:
        raise BadArgument(f"--species: expected elements such as Ar, got {element[:80]!r}")
    return NUMBERS[element]
