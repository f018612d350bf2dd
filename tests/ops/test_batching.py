"""The declaration of rows: batching, by attributes too, and shared inputs."""

from dataclasses import replace
from typing import Any, Literal

import pytest
import tensorflow as tf

from app.autodiff.derived import derive
from ops import Attrs, Op, discover

OPS = discover().ops


class Kind(Attrs):
    """A static attribute and a number."""

    by: Literal["rows", "all"] = "rows"
    k: float = 1.0


def by_attribute(attrs: Any) -> Any:
    return "leading_axis" if attrs.by == "rows" and attrs.k == 1 else "none"


def total(logits: Any, labels: Any, by: str, k: Any) -> Any:
    return k * tf.reduce_sum(logits, -1)


def wrong(attrs: Any) -> Any:
    return "rows"


def declared(op: str, **changes: Any) -> Op:
    return replace(OPS[op], **changes)


@pytest.mark.parametrize(
    ("op", "changes", "words"),
    [
        ("safe_norm", {"batching": "rows"}, "'leading_axes'"),
        ("safe_norm", {"batching": "elementwise"}, "an elementwise op has inputs and outputs of one shape"),
        ("safe_norm", {"batching": "leading_axis"}, 'declare batching="leading_axes" if all'),
        ("softmax_cross_entropy", {"batching": "leading_axes"}, 'write shape=("...", ...)'),
        ("conv_eig", {"shared": ()}, "write the same symbol for the rows"),
        ("conv_eig", {"shared": ("g",)}, "expected names of inputs (x, f), got 'g'"),
        ("conv_eig", {"shared": ("x", "f")}, "at least one input with rows"),
        ("conv_eig", {"batching": "none"}, "leave shared out, or declare"),
        ("sign", {"shared": ("x",)}, "expected no names with batching='elementwise'"),
        ("softmax_cross_entropy", {"shared": ("labels",)}, "without the axis of rows, 'N'"),
        ("clip_gradient", {"batching": wrong}, "batching: expected one of 'elementwise', 'leading_axis'"),
        ("clip_gradient", {"batching": lambda: "none"}, "batching: expected a function that takes (attrs)"),
    ],
)
def test_a_wrong_declaration_is_refused(op: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        declared(op, **changes)
    assert words in str(caught.value)


def test_batching_depends_on_static_attributes_alone() -> None:
    op = declared("softmax_cross_entropy", attrs=Kind, batching=by_attribute, reference=None, function=total)
    assert op.batching_varies
    assert [op.batching_for(Kind(by=by, k=2.0)) for by in ("rows", "all")] == ["leading_axis", "none"]
    clip = OPS["clip_gradient"]
    batching = {by: clip.batching_for(clip.attrs.model_validate({"by": by})) for by in ("value", "norm", "none")}
    assert batching == {"value": "elementwise", "norm": "none", "none": "elementwise"}


def test_derived_ops_have_the_rows_of_their_op() -> None:
    """The cotangent of shared filters is a sum over the rows; their tangent is shared as well."""
    eig = OPS["conv_eig"]
    assert (derive(eig, "vjp").batching, derive(eig, "vjp").shared) == ("none", ())
    jvp = derive(eig, "jvp")
    assert (jvp.batching, jvp.shared) == ("leading_axis", ("f", "tf"))
    assert derive(jvp, "vjp").batching == "none"
    assert derive(derive(OPS["safe_norm"], "vjp"), "vjp").batching == "leading_axes"
