"""The points of a check: stratified over the domain, and independently at each index."""

import numpy as np
import pytest

from app.gradcheck import points
from ops import Op
from tests.gradcheck.op_makers import cube, elementwise, rows

COUNT = 50


OPS = (elementwise(cube), elementwise(cube, slot={"domain": (-7.0, 3.0)}), rows(lambda x, w: x[:, 0]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("op", OPS, ids=["elementwise", "in a domain", "rows"])
def test_each_index_has_one_number_in_every_stratum(op: Op, seed: int) -> None:
    drawn = points.latin_hypercube(op, {}, "float64", np.random.default_rng(seed), COUNT)
    orders = list[tuple[int, ...]]()
    for slot in op.inputs:
        low, high = slot.domain
        strata = np.floor(COUNT * (np.stack([point[slot.name] for point in drawn]) - low) / (high - low))
        for column in strata.reshape(COUNT, -1).T:
            assert sorted(column) == list(range(COUNT))
            orders.append(tuple(column))
    assert len(set(orders)) == len(orders)
