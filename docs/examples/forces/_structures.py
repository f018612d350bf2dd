"""What the pages of energies share: atoms in periodic cells, the distances between them, and bad structures.

Structures of different sizes stand in one request, padded to the largest. A place with species 0 has no atom: whatever
its position, even NaN, no number of the energy is made of it, and its gradient is 0 because nothing reaches it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Input, InvalidInput, Tensor

DTYPES = ("float64", "float32")
INPUTS = (
    Input("positions", dtypes=DTYPES, shape=("S", "N", 3), doc="Positions in Å, which need not be inside the cell."),
    Input("cell", dtypes=DTYPES, shape=("S", 3, 3), doc="The vectors of the cell, one in each row, in Å."),
    Input(
        "species",
        dtypes=("int32",),
        shape=("S", "N"),
        differentiable=False,
        doc="Atomic numbers: 10, 18 or 36 (neon, argon, krypton), and 0 for no atom.",
    ),
    Input(
        "strain",
        dtypes=DTYPES,
        shape=("S", 3, 3),
        doc="ε: positions r become r (1 + ε), and cells likewise. The stress is dE/dε divided by the volume.",
    ),
)
NOBLE = (10, 18, 36)
MOST_PAIRS = 1 << 22
"""The most pairs of atoms and images in a request: forces take up to 300 bytes for each, and so 1.3 GB."""
FEW_PAIRS = 128
"""The most pairs of a structure whose tables take less time than the calls of TensorFlow: up to 11 atoms, no images."""
WORK = 1000
"""The multiply-adds that take as long as one of many pairs. They keep Hessian products computed at once below 4 GB."""
SPACING = 3.7


class Neighbours(Attrs):
    """Which atoms interact, and how many images of the cell are looked at to find them."""

    cutoff: float = Field(default=6.0, ge=1, le=20, description="distance in Å from which atoms do not interact")
    images: int = Field(default=1, ge=0, le=2, description="images of the cell to each side of the nearest one")


def squared_distances(
    positions: Tensor, cell: Tensor, species: Tensor, strain: Tensor, *, cutoff: Tensor, images: int
) -> Tensor:
    """Return r² (S, N, N, M) from each atom to the M images of each, and the cutoff's for those that do not interact.

    Of each pair, the M are the image that is nearest in units of the cell, and ``images`` to each side of it.
    """
    here = species > 0
    positions = tf.where(here[..., None], positions, tf.zeros_like(positions))
    deformation = tf.eye(3, dtype=cell.dtype) + strain
    positions, cell = tf.matmul(positions, deformation), tf.matmul(cell, deformation)
    apart = positions[:, None, :, :] - positions[:, :, None, :]
    a, b, c = tf.unstack(cell, axis=1)
    faces = tf.stack([tf.linalg.cross(b, c), tf.linalg.cross(c, a), tf.linalg.cross(a, b)], axis=2)
    volume = tf.reduce_sum(a * faces[:, :, 0], 1)
    cells = tf.stop_gradient(tf.round(tf.matmul(apart, (faces / volume[:, None, None])[:, None])))
    apart -= tf.matmul(cells, cell[:, None])
    shifts = np.moveaxis(np.indices([2 * images + 1] * 3) - images, 0, -1).reshape(-1, 3)
    moved = tf.matmul(tf.constant(shifts, cell.dtype)[None] + tf.zeros_like(cell[:, :1, :1]), cell)
    squares = tf.add_n([tf.square(apart[..., None, k] + moved[:, None, None, :, k]) for k in range(3)])
    is_self = tf.eye(tf.shape(species)[1], dtype=tf.bool)[:, :, None] & ~shifts.any(axis=1)
    both = here[:, None, :, None] & here[:, :, None, None]
    far = tf.square(cutoff)
    # A NaN is not beyond the cutoff.
    return tf.where(both & ~is_self & ~(squares >= far), squares, far * tf.ones_like(squares))


def switch(squares: Tensor, onset: Tensor, cutoff: Tensor) -> Tensor:
    """Return 1 up to the onset, 0 from the cutoff, and between them a polynomial with two continuous derivatives."""
    u = tf.clip_by_value((squares - onset**2) / (cutoff**2 - onset**2), 0.0, 1.0)
    return 1 - u**3 * (10 - 15 * u + 6 * u**2)


def reference_switch(r: Array, onset: float, cutoff: float) -> Array:
    """Return the same, in NumPy."""
    u = np.clip((r**2 - onset**2) / (cutoff**2 - onset**2), 0, 1)
    return np.polyval([-6, 15, -10, 0, 0, 1], u)


def reference_distances(
    positions: Array, cell: Array, species: Array, strain: Array, cutoff: float
) -> tuple[Array, Array, Array]:
    """Return the atoms i and j and the distance of each interaction of one structure, among all images that matter."""
    atoms = np.flatnonzero(species)
    f = np.eye(3) + strain
    cell = cell @ f
    inside = (positions[atoms] @ f @ np.linalg.inv(cell)) % 1 @ cell
    counts = np.ceil(cutoff * np.linalg.norm(np.linalg.inv(cell), axis=0)).astype(int) + 1
    shifts = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in counts), indexing="ij"), -1).reshape(-1, 3)
    r = np.linalg.norm(inside[None, :, None] - inside[:, None, None] + shifts @ cell, axis=-1)
    i, j, shift = np.nonzero((r < cutoff) & (r > 0))
    return atoms[i], atoms[j], r[i, j, shift]


def validate(inputs: Mapping[str, Array], attrs: Neighbours) -> None:
    """Refuse structures without atoms, of other species, with two atoms at one place, too flat a cell, or too many."""
    species, positions = inputs["species"], np.asarray(inputs["positions"], np.float64)
    cell, here = np.asarray(inputs["cell"], np.float64), species > 0
    if (pairs := species.size * species.shape[1] * (2 * attrs.images + 1) ** 3) > MOST_PAIRS:
        expected = (
            f"at most {MOST_PAIRS} of S N² (2 images + 1)³: send fewer structures, or larger cells with fewer images"
        )
        raise InvalidInput("species", "too many pairs of atoms and images", expected=expected, got=str(pairs))
    if (lost := ~np.isin(species, (0, *NOBLE))).any():
        expected = "neon (10), argon (18), krypton (36), or 0 for no atom"
        _refuse("species", "unknown species", expected, f"the atomic number {species[lost][0]}", lost)
    if (empty := ~here.any(1)).any():
        _refuse("species", "a structure without atoms", "at least one atom", "none", empty)
    if (lost := here & ~np.isfinite(positions).all(2)).any():
        _refuse("positions", "an atom without a position", "finite numbers", positions[lost][0].tolist(), lost)
    with np.errstate(all="ignore"):
        deformation = np.eye(3) + np.asarray(inputs["strain"], np.float64)
        positions, cell = positions @ deformation, cell @ deformation
        inverse = _inverse(cell)
        heights = 1 / np.linalg.norm(inverse, axis=1)
        if (flat := ~(heights > 1e-6 * np.linalg.norm(cell, axis=2)).all(1)).any():
            _refuse("cell", "a cell of no volume", "three finite vectors that are not in a plane", "others", flat)
        needed = np.ceil(attrs.cutoff / heights.min(1) - 0.5 - 1e-9)
        if (flat := needed > attrs.images).any():
            expected = f"images of at least {needed[flat].max():.0f} for a cutoff of {attrs.cutoff:g}"
            _refuse("cell", "images of the cell within the cutoff are not looked at", expected, attrs.images, flat)
        # Equal to a millionth of the cell; places without an atom are all different.
        inside = np.where(here[..., None], positions, 0.0) @ inverse % 1
    grid = (np.round(inside * 1e6) % 1e6).astype(np.int64) @ np.array([1, 10**6, 10**12])
    places = np.where(here, grid, -1 - np.arange(here.shape[1]))
    order = np.argsort(places, axis=1)
    sorted_places = np.take_along_axis(places, order, axis=1)
    if (same := np.diff(sorted_places, axis=1) == 0).any():
        row, k = np.argwhere(same)[0]
        atoms = sorted(order[row, k : k + 2].tolist())
        expected, got = "atoms at different places", f"atoms {atoms[0]} and {atoms[1]} at one"
        raise InvalidInput(
            "positions", "two atoms at one place", expected=expected, got=got, index=(int(row), atoms[1])
        )


def _inverse(cell: Array) -> Array:
    """Return the inverses of cells, infinite or NaN where there is none."""
    a, b, c = cell[:, 0], cell[:, 1], cell[:, 2]
    faces = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=2)
    return faces / np.einsum("si,si->s", a, faces[:, :, 0])[:, None, None]


def _refuse(name: str, message: str, expected: str, got: object, where: Array) -> None:
    index = tuple(map(int, np.argwhere(where)[0]))
    raise InvalidInput(name, message, expected=expected, got=str(got), index=index)


def sample(rng: np.random.Generator, dtype: str, attrs: Neighbours) -> dict[str, Array]:
    """Draw five and three atoms near places of a lattice, in cells that have room for them and for the cutoff."""
    sites = SPACING * np.array(list(np.ndindex(2, 2, 2)), dtype)
    size = max(2 * SPACING, 1.1 * attrs.cutoff / (attrs.images + 0.5))
    species = rng.choice(NOBLE, (2, 5)).astype("int32")
    species[1, 3:] = 0
    return {
        "positions": np.stack([sites[rng.permutation(8)[:5]] for _ in range(2)]) + rng.uniform(-0.3, 0.3, (2, 5, 3)),
        "cell": size * np.eye(3) + rng.uniform(-0.2, 0.2, (2, 3, 3)),
        "species": species,
        "strain": rng.uniform(-0.01, 0.01, (2, 3, 3)),
    }


def cost(dims: Mapping[str, Any]) -> int:
    """Each atom meets all images of each. Structures of few pairs share calls: their tables stay in a CPU's caches."""
    pairs = dims["N"] ** 2 * (2 * dims["images"] + 1) ** 3
    return dims["S"] * pairs * (10 if pairs <= FEW_PAIRS else WORK)
