# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Forces
#
# An energy that a service serves is a potential for ASE: forces are minus its gradient, and ASE's molecular dynamics
# takes them as any others. In a clone, start a service with the page of the energy, and install ASE beside the client:
#
#     pullback serve docs/examples/forces
#     pip install ".[ase]" matplotlib
#
# The energy of two argon atoms at a distance $r$ is that of Lennard and Jones, as long as $r$ is below 80 % of the
# cutoff:
#
# $$E = 4\varepsilon\left[\left(\tfrac{\sigma}{r}\right)^{12} - \left(\tfrac{\sigma}{r}\right)^6\right], \qquad
#   F = \frac{24\varepsilon}{r}\left[2\left(\tfrac{\sigma}{r}\right)^{12} - \left(\tfrac{\sigma}{r}\right)^6\right].$$

# %%
import matplotlib.pyplot as plt
import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.md.verlet import VelocityVerlet

from pullback.ase import Calculator

EPSILON, SIGMA = 0.01042, 3.40
# The service is that of PULLBACK_URL, by default http://127.0.0.1:8000.
calculator = Calculator("pair_energy", cutoff=10.0)
distances = np.linspace(3.2, 7.5, 44)
pairs = [Atoms("Ar2", [(0, 0, 0), (r, 0, 0)]) for r in distances]
found = calculator.evaluate(pairs)  # all pairs in one request
energies = np.array([one["energy"] for one in found])
forces = np.array([one["forces"][1, 0] for one in found])

sixth = (SIGMA / distances) ** 6
exact_energies = 4 * EPSILON * (sixth**2 - sixth)
exact_forces = 24 * EPSILON / distances * (2 * sixth**2 - sixth)
print(
    f"largest error of an energy: {np.abs(energies - exact_energies).max():.1e} eV"
)
print(f"largest error of a force:   {np.abs(forces - exact_forces).max():.1e} eV/Å")
assert np.allclose(forces, exact_forces)

# %% [markdown]
# ## Molecular dynamics
#
# A crystal of 32 atoms, a little out of place, moves for half a picosecond. Kinetic and potential energy change into
# each other, and their sum stays, which it would not with wrong forces:

# %%
atoms = bulk("Ar", "fcc", 5.3, cubic=True) * (2, 2, 2)
atoms.rattle(0.1, seed=1)
atoms.calc = Calculator("pair_energy", cutoff=8.0)
course = []
dynamics = VelocityVerlet(atoms, 5 * units.fs)
dynamics.attach(
    lambda: course.append(
        (atoms.get_potential_energy(), atoms.get_kinetic_energy())
    )
)
dynamics.run(100)
potential, kinetic = np.array(course).T
total = potential + kinetic
print(f"kinetic energy: up to {1e3 * kinetic.max():.0f} meV")
print(f"the total changes by {1e3 * np.ptp(total):.2f} meV")
assert np.ptp(total) < 0.01 * kinetic.max()

# %% alt="Left: energy and force of two atoms by distance, with the closed forms behind them; the energy is least at 3.8 Å, where the force is 0. Right: over 500 fs, the kinetic energy rises and the potential energy falls by as much; their sum is a straight line."
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for values, exact, label in (
    (energies, exact_energies, "energy, eV"),
    (forces, exact_forces, "force, eV/Å"),
):
    left.plot(distances, exact, color="#bbbbbb", linewidth=6)
    left.plot(distances, values, label=label)
left.set(xlabel="distance, Å", ylim=(-0.02, 0.03))
left.legend(frameon=False)
time = 5 * np.arange(len(total))
for values, label in (
    (kinetic, "kinetic"),
    (potential - total[0], "potential"),
    (total - total[0], "total"),
):
    right.plot(time, 1e3 * values, label=label)
right.set(xlabel="time, fs", ylabel="energy, meV")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# [Forces](../forces.md) has relaxation, phonons, structures of any sizes, and other programs for dynamics.
