"""Forces of many structures, of Lennard-Jones beside ASE's own, and of 16 clients of molecular dynamics at once.

Serve docs/examples/forces, and run this in an environment with ASE: ``python -m benchmarks.forces URL``. Each pair of
figures is measured in turn, and the median of the rounds is printed.
"""

import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.md.verlet import VelocityVerlet

from benchmarks.commit import described
from pullback.ase import Calculator

ROUNDS, STEPS, CLIENTS = 7, 40, 16


def milliseconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median time of each work, all in turn, after one round that is not counted."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(1 + ROUNDS):
        for work, of_work in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            of_work.append(1e3 * (time.perf_counter() - began))
    return [median(of_work[1:]) for of_work in times]


def counters(url: str) -> dict[str, float]:
    """Return the service's counts of requests, calls, and milliseconds of computation."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        text = response.read().decode()
    names = {"requests_total": 1.0, "executions_total": 1.0, "compute_seconds_total": 1e3}
    return {
        name: scale * sum(map(float, re.findall(rf'^pullback_{name}{{op="pair_energy".*}} (\S+)$', text, re.MULTILINE)))
        for name, scale in names.items()
    }


def structures(*, has_images: bool) -> list[Atoms]:
    """Return 100 structures of 8 to 64 atoms: crystals whose images interact, or clusters."""
    sites = 3.7 * np.array(list(np.ndindex(4, 4, 4)), float)
    found = [Atoms(f"Ar{n}", sites[:n], cell=[14.8] * 3, pbc=has_images) for n in np.linspace(8, 64, 100).astype(int)]
    for i, atoms in enumerate(found):
        atoms.rattle(0.1, seed=i)
    return found


def many(url: str) -> None:
    """Compare one request with one for each structure, and with one for each of ten groups of like sizes."""
    calculator = Calculator("pair_energy", url)
    for has_images in (False, True):
        found = structures(has_images=has_images)
        together, grouped, alone = milliseconds(
            [
                lambda found=found: calculator.evaluate(found),
                lambda found=found: [calculator.evaluate(found[i : i + 10]) for i in range(0, 100, 10)],
                lambda found=found: [calculator.evaluate([one]) for one in found],
            ]
        )
        what = "crystals" if has_images else "clusters"
        print(
            f"100 {what}: ms each: {together / 100:.2f} in one request, {grouped / 100:.2f} in ten, {alone / 100:.2f}"
        )


def beside_ase(url: str) -> None:
    """Compare a step of ASE's calculator with one over HTTP, of which the service computes a part."""
    for repeat in ((1, 1, 2), (2, 2, 2), (3, 3, 3), (4, 4, 4)):
        atoms = bulk("Ar", "fcc", 5.3, cubic=True) * repeat
        atoms.rattle(0.1, seed=1)
        ours, theirs = Calculator("pair_energy", url), LennardJones(epsilon=0.01042, sigma=3.4, rc=6.0, smooth=True)

        def step(calculator: Calculator | LennardJones, atoms: Atoms = atoms) -> None:
            atoms.rattle(1e-4, seed=None, rng=np.random.default_rng())
            calculator.get_property("forces", atoms)

        before = counters(url)
        mine, ase = milliseconds(
            [lambda ours=ours, step=step: step(ours), lambda theirs=theirs, step=step: step(theirs)]
        )
        after = counters(url)
        computing = (after["compute_seconds_total"] - before["compute_seconds_total"]) / (1 + ROUNDS)
        print(f"{len(atoms)} atoms: ms a step: {ase:.1f} in ASE, {mine:.1f} here, of which TensorFlow {computing:.1f}")


def clients(url: str) -> None:
    """Run molecular dynamics in 16 threads at once; count the calls that their steps share."""
    for atoms in (Atoms("Ar8", 3.7 * np.array(list(np.ndindex(2, 2, 2)), float)), bulk("Ar", cubic=True) * (1, 1, 2)):

        def run(seed: int, atoms: Atoms = atoms) -> None:
            own = atoms.copy()
            own.rattle(0.1, seed=seed)
            own.calc = Calculator("pair_energy", url)
            VelocityVerlet(own, 5 * units.fs).run(STEPS)

        for count in (1, CLIENTS):
            threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
            before, began = counters(url), time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wall, after = time.perf_counter() - began, counters(url)
            steps, calls, computing = (after[name] - before[name] for name in before)
            where = "with images" if all(atoms.pbc) else "without images"
            print(
                f"{count} clients, 8 atoms {where}: {steps:.0f} steps in {calls:.0f} calls, "
                f"ms a step: {1e3 * wall / steps:.2f}, of which TensorFlow {computing / steps:.2f}"
            )


if __name__ == "__main__":
    print(f"commit {described()}")
    for measure in (many, beside_ase, clients):
        measure(sys.argv[1])
