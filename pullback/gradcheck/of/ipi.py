"""Drivers of i-PI as models: ``ipi+unix:NAME`` or ``ipi+HOST:PORT``, where these checks are the server."""

import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument, PullbackError, TimedOut
from pullback.gradcheck.function import array_of
from pullback.gradcheck.of.structures import VOIGT, Numbers, StructureModel
from pullback.ipi_socket import BOHR, HARTREE, MAX_NUMBERS, Channel, IpiAddress, ipi_address

ATOMS = MAX_NUMBERS // 3
FLAT = 1e-9
"""The volume of a cell that is too flat, divided by the product of its lengths."""


class IpiModel(StructureModel):
    """The first driver that connects, with a structure that keeps the form of i-PI's cells.

    i-PI rotates a structure until the first vector of its cell is along x and the second in the plane of x and y. So
    strains are those that keep it so, and the half of the virial that belongs to others is not used, as in i-PI.
    """

    is_symmetric = False
    strains = np.array([np.eye(3)[[j]].T @ np.eye(3)[[i]] for i, j in VOIGT])

    def __init__(self, target: str, opened: ExitStack, timeout: float, config: Mapping[str, Any]) -> None:
        """Listen until a driver connects, and ask it for the numbers of the structure; ``opened`` ends it.

        Raises ``BadArgument`` for a structure or an address that is none, ``CannotConnect``, and ``TimedOut`` if no
        driver connects.
        """
        name = f"ipi+{target}"
        address = ipi_address(target)
        positions, cell = _structure(name, config)
        self._channel = Channel(_accepted(address, timeout), f"the driver at {address}", timeout)
        opened.callback(self._channel.close)
        opened.callback(self._end)
        virial = self._ask(positions, cell).virial
        super().__init__(name, positions, cell, has_stress=bool(np.any(virial)))
        if not np.any(virial):
            self.remark = "The driver sends a virial of 0, as those without one do: only forces were checked."

    def compute(self, positions: Array, cell: Array) -> Numbers:
        """Return the driver's numbers."""
        return self._ask(positions, cell)

    def _ask(self, positions: Array, cell: Array) -> Numbers:
        channel, h = self._channel, cell.T / BOHR
        if self._status("NEEDINIT", "READY") == "NEEDINIT":
            channel.send("INIT", 0, 1, b" ")
            self._status("READY")
        channel.send("POSDATA", h, np.linalg.inv(h), len(positions), positions / BOHR)
        self._status("HAVEDATA")
        channel.send("GETFORCE")
        self._expect("FORCEREADY")
        energy, count = float(channel.numbers(1)[0]), channel.integer()
        if count != len(positions):
            raise BadAnswer(f"{channel.peer}: expected forces of {len(positions)} atoms, got {count}")
        forces, virial = channel.numbers(count, 3), channel.numbers(3, 3)
        channel.text()
        return Numbers(energy * HARTREE, forces * (HARTREE / BOHR), -np.tril(virial.T) * HARTREE)

    def _status(self, *expected: str) -> str:
        self._channel.send("STATUS")
        return self._expect(*expected)

    def _expect(self, *expected: str) -> str:
        header = self._channel.header()
        if header not in expected:
            raise BadAnswer(f"{self._channel.peer}: expected {' or '.join(expected)}, got {header!r}")
        return header

    def _end(self) -> None:
        with suppress(PullbackError):
            self._channel.send("EXIT")


def _accepted(address: IpiAddress, timeout: float) -> socket.socket:
    """Return the connection of the first driver; raise ``TimedOut`` if none connects in time."""
    with closing(address.listen()) as listener:
        listener.settimeout(timeout)
        try:
            return listener.accept()[0]
        except TimeoutError:
            raise TimedOut(f"no driver connected to {address} in {timeout:g} s: start it, or raise --timeout") from None
        finally:
            if address.path:
                Path(address.path).unlink(missing_ok=True)


def _structure(name: str, config: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return positions and a cell as i-PI has it, from ``config``; raise ``BadArgument``."""
    example = """--config '{"positions": [[0, 0, 0], ...], "cell": [[9, 0, 0], ...]}' in Å"""
    if set(config) != {"positions", "cell"}:
        raise BadArgument(f"{name}: expected a structure, as {example} or @structure.json, got {list(config)[:9]}")
    try:
        count = len(config["positions"])
        positions = array_of(config["positions"], (count, 3), "--config: positions")
        cell = array_of(config["cell"], (3, 3), "--config: cell")
    except (BadAnswer, TypeError) as error:
        raise BadArgument(f"{name}: expected {example}: {error}") from error
    if not 1 <= count <= ATOMS or not (np.isfinite(positions).all() and np.isfinite(cell).all()):
        raise BadArgument(f"{name}: expected finite numbers of 1 to {ATOMS} atoms, got others, or {count} atoms")
    with np.errstate(over="ignore", invalid="ignore"):
        lengths: Array = np.linalg.norm(cell, axis=1)
        has_volume = np.linalg.det(cell) > FLAT * lengths[0] * lengths[1] * lengths[2]
    if not has_volume:
        raise BadArgument(f"{name}: expected a cell of positive volume, with vectors in right-handed order")
    if np.any(np.triu(cell, 1)) or np.any(np.diag(cell) < 0):
        turned, triangle = np.linalg.qr(cell.T)
        signs = np.sign(np.diag(triangle))
        positions, cell = positions @ (turned * signs), np.tril(triangle.T * signs)
    return positions, cell
