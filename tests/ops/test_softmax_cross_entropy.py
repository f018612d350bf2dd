"""The cross entropy: labels that name no class, and logits that overflow the exponential."""

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.absent import Absent
from app.errors import Unprocessable
from ops import MODES
from tests.ops.cases import REGISTRY, Case, answer, eps

OP = REGISTRY.ops["softmax_cross_entropy"]


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_names_no_class_is_refused_with_its_index(label) -> None:
    with pytest.raises(Unprocessable) as error:
        Case(OP, OP.examples[0]).point(inputs={"logits": np.zeros((2, 3)), "labels": [0, label]})
    (entry,) = error.value.entries
    assert entry.loc == ("inputs", "labels", 1)
    assert entry.got == str(label)


@pytest.mark.parametrize("mode", MODES)
def test_it_matches_tensorflow(mode) -> None:
    logits, labels = np.random.default_rng(0).normal(size=(2, 3)), [2, 1]
    point = Case(OP, OP.examples[0]).point(mode=mode, inputs={"logits": logits, "labels": labels})
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(logits))
        y = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
    found = answer(point, "vjp", {})
    # Exponentials, a sum of three, a logarithm: a dozen roundings on either side, of numbers up to 2.
    np.testing.assert_allclose(found["outputs/loss"], y, rtol=0, atol=48 * eps("float64"))
    np.testing.assert_allclose(found["gradients/logits"], tape.gradient(y, x), rtol=0, atol=24 * eps("float64"))
    assert found["gradients/labels"] == Absent.NOT_DIFFERENTIABLE


@pytest.mark.parametrize("mode", MODES)
def test_an_impossible_class_has_no_gradient(mode) -> None:
    inputs = {"logits": [[0.0, -np.inf, 0.0], [1e4, -1e4, 0.0]], "labels": [0, 1]}
    found = answer(Case(OP, OP.examples[0]).point(mode=mode, inputs=inputs), "vjp", {})
    np.testing.assert_allclose(found["outputs/loss"], [np.log(2), 2e4], rtol=4 * eps("float64"))
    np.testing.assert_allclose(found["gradients/logits"], [[-0.5, 0, 0.5], [1, -1, 0]], rtol=4 * eps("float64"))
