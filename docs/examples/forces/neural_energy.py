"""Energy of noble gases by a small neural network on the surroundings of each atom: E = Σᵢ a · tanh(W gᵢ + b).

g[i,k] = Σⱼ z[j] exp(-η (r/cutoff - c[k])²) s(r) counts the atoms around atom i at distances near c[k] cutoff, images
of the cell included; z are numbers of the species. s falls from 1 to 0 at the cutoff, with two continuous derivatives.
Forces are -dE/dr, and the stress is dE/dε over the volume, as of pair_energy.

The weights are constants of this page, and arbitrary: put those of a trained network in their place.

Source: Behler and Parrinello, "Generalized Neural-Network Representation of High-Dimensional Potential-Energy Surfaces"
(2007).
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

CENTRES, WIDTH, HIDDEN = np.linspace(0.3, 0.8, 4), 12.0, 6
FIRST = 0.4 * np.sin(1.7 * np.arange(4 * HIDDEN)).reshape(4, HIDDEN)
BIAS, LAST = 0.1 * np.cos(np.arange(HIDDEN)), 0.05 * np.cos(2.3 * np.arange(HIDDEN))
NUMBER = np.zeros(37)
NUMBER[[10, 18, 36]] = 0.5, 1.0, 1.5


def forward(positions: Tensor, cell: Tensor, species: Tensor, strain: Tensor, *, cutoff: Tensor, images: int) -> Tensor:
    """E, for each structure."""
    squares = squared_distances(positions, cell, species, strain, cutoff=cutoff, images=images)
    number, centres, first, bias, last = (
        tf.constant(table, cell.dtype) for table in (NUMBER, CENTRES, FIRST, BIAS, LAST)
    )
    r = tf.sqrt(squares) / cutoff
    weights = tf.gather(number, species)[:, None, :, None] * switch(squares, 0 * cutoff, cutoff)
    around = [tf.reduce_sum(tf.exp(-WIDTH * tf.square(r - centre)) * weights, (2, 3)) for centre in tf.unstack(centres)]
    # Sums, as a product of matrices rounds differently for other numbers of structures.
    hidden = tf.tanh(tf.add_n([g[..., None] * row for g, row in zip(around, tf.unstack(first), strict=True)]) + bias)
    energies = tf.reduce_sum(hidden * last, -1)
    return tf.reduce_sum(tf.where(species > 0, energies, tf.zeros_like(energies)), 1)


def reference(positions: Array, cell: Array, species: Array, strain: Array, *, cutoff: float, images: int) -> Array:
    """E, in NumPy, from all images within the cutoff."""
    energies: list[float] = []
    for one in zip(positions, cell, species, strain, strict=True):
        i, j, r = reference_distances(*one, cutoff)
        atoms, each = np.flatnonzero(one[2]), np.exp(-WIDTH * (r[:, None] / cutoff - CENTRES) ** 2)
        each *= (NUMBER[one[2][j]] * reference_switch(r, 0, cutoff))[:, None]
        g = np.array([each[i == atom].sum(0) for atom in atoms])
        energies.append(float((np.tanh(g @ FIRST + BIAS) @ LAST).sum()))
    return np.array(energies)


OP = Op(
    name="neural_energy",
    summary="energy of noble gases in periodic cells, by a small neural network on distances",
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
    source="https://doi.org/10.1103/PhysRevLett.98.146401",
    examples=(
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
