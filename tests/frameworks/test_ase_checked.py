"""``pullback check ase+module:factory`` with calculators of ASE, right ones and one with a wrong stress."""

import subprocess
import sys
from pathlib import Path

import pytest

CALCULATORS = """
from ase.build import bulk, fcc111
from ase.calculators.emt import EMT
from pullback.ase import Calculator


def copper():
    atoms = bulk("Cu", cubic=True)
    atoms.calc = EMT()
    return atoms


class Wrong(EMT):
    def calculate(self, *arguments):
        super().calculate(*arguments)
        self.results["stress"] = -self.results["stress"]


def wrong():
    calculator = Wrong()
    calculator.atoms = copper()
    return calculator


class SmallStress(EMT):
    def calculate(self, *arguments):
        super().calculate(*arguments)
        self.results["stress"] = self.results["stress"] / 18


def slab(calculator=EMT):
    atoms = fcc111("Cu", (2, 2, 2), vacuum=5)
    atoms.pbc = (True, True, False)
    atoms.calc = calculator()
    return atoms


def wrong_slab():
    return slab(SmallStress)


def argon():
    atoms = bulk("Ar", cubic=True)
    atoms.calc = Calculator("neural_energy", "URL")
    return atoms
"""


@pytest.mark.parametrize(
    ("factory", "status"), [("copper", 0), ("argon", 0), ("wrong", 1), ("slab", 0), ("wrong_slab", 1)]
)
def test_calculators_are_checked(url: str, factory: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "calculators.py").write_text(CALCULATORS.replace("URL", url))
    command = [sys.executable, "-m", "pullback", "check", f"ase+calculators:{factory}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    if status:
        assert "denergy/dstrain" in done.stdout
