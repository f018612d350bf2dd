"""Energy of noble gases by a smooth pair potential: E = ½ Σ 4ε ((σ/r)¹² - (σ/r)⁶) s(r), over atoms and images.

Forces are -dE/dr, and the stress is dE/dε over the volume, at strain ε = 0: r becomes r (1 + ε), and the cell likewise.
s falls from 1 at 80 % of the cutoff to 0 at the cutoff, with two continuous derivatives, so that Hessian products are
those of a smooth function. Distances of unlike atoms are means, and energies geometric means, of those of like ones
(Lorentz and Berthelot). Energies are in eV.

The gradient is TensorFlow's own. An atom and the places without an atom are at the cutoff, where s and its derivatives
are 0. Which images are nearest does not change within the cutoff, so rounding has no derivative.

Source: Allen and Tildesley, "Computer Simulation of Liquids" (2017), sections 1.3 and 5.2.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from ops import Array, Example, Op, Output, Tensor

sys.path.append(str(Path(__file__).parent))
from _structures import (
    DTYPES,
    INPUTS,
    Neighbours,
    cost,
    reference_distances,
    reference_switch,
    sample,
    squared_distances,
    switch,
    validate,
)

ONSET = 0.8
EPSILON, SIGMA = np.zeros(37), np.zeros(37)
EPSILON[[10, 18, 36]] = 0.00312, 0.01042, 0.01410
SIGMA[[10, 18, 36]] = 2.74, 3.40, 3.65


def forward(positions: Tensor, cell: Tensor, species: Tensor, strain: Tensor, *, cutoff: Tensor, images: int) -> Tensor:
    """E, for each structure."""
    squares = squared_distances(positions, cell, species, strain, cutoff=cutoff, images=images)
    root, sigma = (tf.gather(tf.constant(table, cell.dtype), species) for table in (EPSILON**0.5, SIGMA))
    epsilon = root[:, :, None, None] * root[:, None, :, None]
    sixth = ((sigma[:, :, None, None] + sigma[:, None, :, None]) / 2) ** 6 / squares**3
    energies = 2 * epsilon * sixth * (sixth - 1) * switch(squares, ONSET * cutoff, cutoff)
    return tf.reduce_sum(energies, (1, 2, 3))


def reference(positions: Array, cell: Array, species: Array, strain: Array, *, cutoff: float, images: int) -> Array:
    """E, in NumPy, from all images within the cutoff."""
    energies: list[float] = []
    for one in zip(positions, cell, species, strain, strict=True):
        i, j, r = reference_distances(*one, cutoff)
        epsilon = np.sqrt(EPSILON[one[2][i]] * EPSILON[one[2][j]])
        ratio = (SIGMA[one[2][i]] + SIGMA[one[2][j]]) / (2 * r)
        each = 4 * epsilon * (ratio**12 - ratio**6) * reference_switch(r, ONSET * cutoff, cutoff)
        energies.append(float(each.sum()) / 2)
    return np.array(energies)


OP = Op(
    name="pair_energy",
    summary="energy of noble gases in periodic cells, by a smooth Lennard-Jones potential",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=INPUTS,
    outputs=(Output("energy", dtypes=DTYPES, shape=("S",), doc="eV"),),
    attrs=Neighbours,
    batching="leading_axis",
    cost=cost,
    validate=validate,
    sample=sample,
    source="https://en.wikipedia.org/wiki/Lennard-Jones_potential",
    examples=(
        Example(
            "argon crystal",
            {
                "positions": [[[0.1, 0, 0], [0, 2.7, 2.6], [2.6, 0, 2.7], [2.7, 2.6, 0]]],
                "cell": [[[5.3, 0, 0], [0, 5.3, 0], [0, 0, 5.3]]],
                "species": [[18, 18, 18, 18]],
                "strain": [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]],
            },
        ),
        Example(
            "two and three atoms",
            {
                "positions": [[[0, 0, 0], [3.8, 0, 0], [0, 0, 0]], [[0, 0, 0], [3.2, 0, 0], [1.5, 3.5, 0.5]]],
                "cell": [[[9, 0, 0], [0, 9, 0], [0, 0, 9]], [[9, 0, 0], [1, 9, 0], [0, 1, 9]]],
                "species": [[18, 36, 0], [10, 18, 18]],
                "strain": [[[0, 0, 0], [0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]]],
            },
        ),
    ),
)
