"""Drivers of i-PI as models: right ones pass, planted mistakes are found, and bad answers end the checks."""

import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.gradcheck.events import TargetOptions, check_targets
from pullback.gradcheck.targets import server_target
from pullback.reports import Report, Start
from tests.ipi_peers import Compute, answer, driver

STRUCTURE = {
    "positions": [[0, 0, 0], [1.3, 0.2, 0], [0.1, 1.2, 0.3], [0, 0.2, 1.1]],
    "cell": [[3.0, 0, 0], [0.4, 3, 0], [0.2, 0.3, 3]],
}
SHIFTS = np.array(list(np.ndindex(3, 3, 3))) - 1


def wells(spoil: str) -> Compute:
    """Return Gaussian wells between atoms and their images, with a mistake."""

    def compute(h: Array, positions: Array) -> tuple[float, Array, Array]:
        apart = positions[None, :, None] - positions[:, None, None] + SHIFTS @ h.T
        deep = -0.1 * np.exp(-np.sum(apart**2, -1) / 8)
        slopes = -deep[..., None] * apart / 4
        forces, virial = np.sum(slopes, (1, 2)), -np.einsum("ijma,ijmb->ab", slopes, apart) / 2
        match spoil:
            case "sign":
                forces = -forces
            case "half":
                forces = forces / 2
            case "curl":
                forces = forces + 0.003 * np.roll(positions, 1, axis=1) * [1, -1, 0]
            case "virial":
                virial = 2 * virial
            case "sign of the virial":
                virial = -virial
            case "shear":
                virial = np.diag(np.diag(virial))
            case "no virial":
                virial = np.zeros((3, 3))
            case "lower half":
                virial = virial + np.tril(np.full((3, 3), np.nan), -1)
            case _:
                pass
        return float(np.sum(deep)) / 2, forces, virial

    return compute


def check(path: Path, work: Any, budget: int = 300, structure: Any = STRUCTURE, timeout: float = 20.0) -> Any:
    """Return the start and the report of the checks of a driver."""
    target = server_target(f"ipi+unix:{path}")
    assert target is not None
    options = TargetOptions(budget=budget, config=structure, timeout=timeout)
    with driver(str(path), work):
        events = list(check_targets([target], options))
    assert not path.exists()
    start = next(each for each in events if isinstance(each, Start))
    return start, next((each.document for each in events if isinstance(each, Report)), None)


def right(connection: socket.socket, spoil: str = "") -> None:
    answer(connection, wells(spoil), connection.sendall)


def slowly(connection: socket.socket) -> None:
    def send(data: bytes) -> None:
        for part in (data[:5], data[5:17], data[17:]):
            connection.sendall(part)
            time.sleep(1e-4)

    answer(connection, wells(""), send)


@pytest.mark.parametrize(
    ("work", "budget"),
    [(right, 300), (slowly, 300), (lambda c: right(c, "lower half"), 300)],
    ids=["right", "slow", "half"],
)
def test_right_drivers_pass(tmp_path: Path, work: Any, budget: int) -> None:
    turned = {
        name: (np.array(x) @ np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])).tolist() for name, x in STRUCTURE.items()
    }
    for structure in (STRUCTURE, turned):
        _, document = check(tmp_path / "s", work, budget, structure)
        assert document["verdict"] == "pass", document["sentence"]
        assert "only forces" not in document["scope"]
        assert {entry["input"] for entry in document["checks"]} >= {"displacements", "strain"}


def test_a_structure_is_rotated_as_a_whole(tmp_path: Path) -> None:
    turned = {name: np.roll(x, 1, axis=1).tolist() for name, x in STRUCTURE.items()}
    seen: list[Array] = []

    def compute(h: Array, positions: Array) -> tuple[float, Array, Array]:
        seen.append(np.linalg.solve(h, positions.T).T)
        return wells("")(h, positions)

    check(tmp_path / "s", lambda c: answer(c, compute, c.sendall), 5, turned)
    expected = np.array(STRUCTURE["positions"]) @ np.linalg.inv(STRUCTURE["cell"])
    np.testing.assert_allclose(seen[0], expected, atol=1e-12)


def test_a_virial_of_zero_is_not_checked_and_the_report_says_so(tmp_path: Path) -> None:
    _, document = check(tmp_path / "s", lambda c: right(c, "no virial"))
    assert document["verdict"] == "pass"
    assert document["scope"].endswith("only forces were checked.")


@pytest.mark.parametrize(
    ("spoil", "finds"),
    [
        ("sign", {("derivative", "displacements")}),
        ("half", {("derivative", "displacements")}),
        ("curl", {("derivative", "displacements"), ("symmetry", "displacements")}),
        ("virial", {("derivative", "strain")}),
        ("sign of the virial", {("derivative", "strain")}),
        ("shear", {("derivative", "strain")}),
    ],
)
def test_planted_mistakes_fail(tmp_path: Path, spoil: str, finds: set[tuple[str, str]]) -> None:
    _, document = check(tmp_path / "s", lambda c: right(c, spoil))
    found = {(entry["check"], entry["input"]) for entry in document["checks"] if entry["verdict"] == "fail"}
    assert found == finds


def after_posdata(*parts: bytes) -> Any:
    """Return a driver that answers the first GETFORCE with these bytes, and closes."""

    def work(connection: socket.socket) -> None:
        answer(connection, wells(""), lambda data: connection.sendall(parts[0] if data[:5] == b"FORCE" else data))

    return work


def says(connection: socket.socket, data: bytes = b"") -> None:
    connection.sendall(data)
    while connection.recv(1 << 12):
        pass


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda connection: None, "closed the connection"),
        (lambda c: says(c, b"HTTP/1.1 400 Bad Request\r\n\r\n"), "expected NEEDINIT or READY, got 'HTTP/1.1 400'"),
        (lambda c: says(c, b"NEEDINIT    HAVEDATA    "), "expected READY, got 'HAVEDATA'"),
        (after_posdata(b"READY       "), "expected FORCEREADY, got 'READY'"),
        (after_posdata(b"FORCEREADY  " + bytes(8) + b"\3\0\0\0"), "expected forces of 4 atoms, got 3"),
        (after_posdata(b"FORCEREADY  " + bytes(8) + b"\xff" * 4), "expected forces of 4 atoms, got -1"),
        (
            after_posdata(b"FORCEREADY  " + bytes(8) + b"\4\0\0\0" + bytes(168) + b"\xff" * 4),
            "expected a text of at most",
        ),
        (after_posdata(b"FORCEREADY  " + bytes(9)), "expected a whole message in 1 s, got 1 of 4 bytes"),
        (says, "expected a whole message in 1 s, got 0 of 1 bytes"),
    ],
)
def test_bad_answers_end_the_checks(tmp_path: Path, work: Any, message: str) -> None:
    start, document = check(tmp_path / "s", work, timeout=1.0 if "in 1 s" in message else 20.0)
    assert document is None
    assert message in str(start.unavailable)


def test_a_driver_that_ends_in_the_midst_is_an_error(tmp_path: Path) -> None:
    left = [9]

    def compute(h: Array, positions: Array) -> tuple[float, Array, Array]:
        left[0] -= 1
        if not left[0]:
            raise EOFError
        return wells("")(h, positions)

    _, document = check(tmp_path / "s", lambda c: answer(c, compute, c.sendall))
    assert document["verdict"] == "error"
    assert "closed the connection" in document["checks"][-1]["sentence"]


def test_numbers_that_are_not_finite_do_not_pass(tmp_path: Path) -> None:
    def compute(h: Array, positions: Array) -> tuple[float, Array, Array]:
        energy, forces, virial = wells("")(h, positions)
        return energy, forces * np.nan, virial

    _, document = check(tmp_path / "s", lambda c: answer(c, compute, c.sendall))
    assert document["verdict"] != "pass"


@pytest.mark.parametrize(
    "structure",
    [
        {},
        {"positions": [[0, 0, 0]]},
        {"positions": [], "cell": np.eye(3).tolist()},
        {"positions": 3, "cell": np.eye(3).tolist()},
        {"positions": [[0, 0]], "cell": np.eye(3).tolist()},
        {"positions": [["a", 0, 0]], "cell": np.eye(3).tolist()},
        {"positions": [[np.nan, 0, 0]], "cell": np.eye(3).tolist()},
        {"positions": [[0, 0, 0]], "cell": [[1, 0, 0], [0, 1, 0], [1, 1, 0]]},
        {"positions": [[0, 0, 0]], "cell": [[0, 1, 0], [1, 0, 0], [0, 0, 1]]},
        {"positions": [[0, 0, 0]], "cell": (1e308 * np.eye(3)).tolist()},
        {"positions": [[0, 0, 0]], "cell": [[np.inf, 0, 0], [0, 1, 0], [0, 0, 1]]},
    ],
)
def test_a_structure_that_is_none_is_refused(tmp_path: Path, structure: Any) -> None:
    target = server_target(f"ipi+unix:{tmp_path / 's'}")
    assert target is not None
    with pytest.raises(BadArgument, match="expected"):
        list(check_targets([target], TargetOptions(config=structure, timeout=0.1)))


@pytest.mark.parametrize("target", ["ipi+", "ipi+argon", "ipi+unix:", "ipi+unix:a\0b", "ipi+localhost:0", "ipi+h:x"])
def test_an_address_that_is_none_is_refused(target: str) -> None:
    found = server_target(target)
    assert found is not None
    with pytest.raises(BadArgument, match="expected unix:NAME or HOST:PORT"):
        list(check_targets([found], TargetOptions(config=STRUCTURE, timeout=0.1)))


def test_without_a_driver_or_at_a_place_that_is_taken_the_model_is_unavailable(tmp_path: Path) -> None:
    target = server_target(f"ipi+unix:{tmp_path / 's'}")
    assert target is not None
    with socket.socket(socket.AF_UNIX) as other:
        for expected in ("no driver connected", "cannot listen"):
            start = next(iter(check_targets([target], TargetOptions(config=STRUCTURE, timeout=0.2))))
            assert isinstance(start, Start)
            assert expected in str(start.unavailable)
            if expected == "no driver connected":
                other.bind(str(tmp_path / "s"))
    assert (tmp_path / "s").exists(), "another server's socket was removed"
