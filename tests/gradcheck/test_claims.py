"""The functions of a claim are called with every input, at inputs of any shape, and may return ``None``."""

import numpy as np
import pytest
import tensorflow as tf

from ops import Claim, Example, Formula, Input, Op, Surrogate, custom_gradient
from tests.gradcheck.checking import failed, report
from tests.gradcheck.op_makers import WIDE, elementwise


def counted(claim: Claim, batching: str = "elementwise") -> Op:
    """Return an op whose second derivative in x is 0, so claims of ``None`` are right."""
    return elementwise(
        custom_gradient(
            lambda x, count: x * tf.cast(count, x.dtype), lambda x, count, dy: (dy * tf.cast(count, x.dtype), None)
        ),
        inputs=(Input("x", WIDE), Input("count", ("int32",), differentiable=False)),
        batching=batching,
        claim=lambda attrs: claim,
        examples=(Example("two", {"x": [1.0, -2.0], "count": [2, 3]}),),
    )


def nothing(*arguments):
    return None, None


INPUTS = {
    "a scalar": {"x": 1.5, "count": 2},
    "a row": {"x": [1.5, -2.0], "count": [2, 3]},
    "a matrix": {"x": [[1.5, -2.0, 3.0], [0.5, 2.5, -1.0]], "count": [[1, 2, 3], [4, 5, 6]]},
    "none": None,
}
CLAIMS = {
    "a surrogate": Claim(Surrogate(lambda primals, at: (primals[0] * primals[1],))),
    "a second surrogate of None": Claim(second=Surrogate(nothing)),
    "a second formula of None": Claim(second=Formula(nothing)),
}


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["elementwise", "none"])
@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
@pytest.mark.share(2)
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_right_claim_passes_at_inputs_of_any_shape(claim: Claim, inputs, batching: str) -> None:
    document = report(counted(claim, batching), inputs=inputs, modes=("graph",), checks=["derivative", "second"])
    assert document["verdict"] == "pass", [entry["sentence"] for entry in document["checks"]]


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_a_wrong_surrogate_fails_at_inputs_of_any_shape(inputs) -> None:
    claim = Claim(Surrogate(lambda primals, at: (primals[0] * np.float64(7),)))
    assert failed(report(counted(claim), inputs=inputs, checks=["derivative"])) == ["derivative"]
