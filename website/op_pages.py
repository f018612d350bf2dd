"""The page of the site with every op: its formulas in TeX, what its page says, and a plot if it is elementwise."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ops import Op, Registry
from pullback.ops import Array
from website.op_formulas import FORMULAS

WIDTH, HEIGHT, MARGIN = 360, 200, 24
LEFT, RIGHT, LOW, HIGH = -3.0, 3.0, -4.0, 4.0
POINTS = 601
OTHER = 2.0
"""The second input of an op with two."""


def op_reference(registry: Registry) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Formulas and plots of the ops\n"
    yield (
        "Made from the pages of the ops, which are run for the plots. $dy$ is a cotangent of the output, and $dx$ what "
        "the op's gradient makes of it; [derivatives](../derivatives.md) has the notation, and "
        "[the ops](../ops.md) what is special about each.\n"
    )
    for name, (value, gradient) in FORMULAS.items():
        op = registry.ops[name]
        yield f"## {name}\n\n{op.summary}.\n\n$${value}$$\n\n$${gradient}$$\n"
        if op.batching_for(op.attrs()) == "elementwise":
            yield figure(op)


def figure(op: Op) -> str:
    """Return the plot of an elementwise op and its gradient, over its first input."""
    x = np.linspace(LEFT, RIGHT, POINTS)
    y, dx = sampled(op, x)
    name, among = op.inputs[0].name, f" at {op.inputs[1].name} = {OTHER:g}" if len(op.inputs) > 1 else ""
    shown = f"{op.name}{among}, for {name} from {LEFT:g} to {RIGHT:g}"
    text = f"Plot of {shown}: the value {course(y)}, and its gradient {course(dx)}."
    lines = "".join(
        f'<path class="{kind}" d="{path(x, values)}"/>' for kind, values in (("gradient", dx), ("value", y))
    )
    return (
        f'<figure class="op-plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text}">'
        f"{axes()}{lines}</svg><figcaption><span class='value'>value</span> and <span class='gradient'>gradient</span> "
        f"of {shown}</figcaption></figure>\n"
    )


def sampled(op: Op, x: Array) -> tuple[Array, Array]:
    """Return the value and the gradient at dy = 1 of an elementwise op over its first input."""
    first = tf.constant(x, "float32")
    others = [tf.fill(first.shape, tf.constant(OTHER, "float32")) for _ in op.inputs[1:]]
    with tf.GradientTape() as tape:
        tape.watch(first)
        y = op.function(first, *others, **op.attrs().model_dump())
    dx = tape.gradient(y, first, unconnected_gradients="zero")
    return np.asarray(y, np.float64), np.asarray(dx, np.float64)


def course(values: NDArray[np.float64]) -> str:
    """Say where a curve begins, passes and ends."""
    return (
        ", ".join(f"{values[i]:.3g}" for i in (0, POINTS // 2, POINTS - 1)) + " at the left, the middle and the right"
    )


def path(x: NDArray[np.float64], values: NDArray[np.float64]) -> str:
    """Return a curve as the data of an SVG path, without its points outside the plot, and broken where it jumps."""
    data: list[str] = []
    jump = (HIGH - LOW) / 20
    for i, (at, value) in enumerate(zip(x, values, strict=True)):
        if not LOW <= value <= HIGH:
            continue
        is_joined = i > 0 and LOW <= values[i - 1] <= HIGH and abs(value - values[i - 1]) < jump
        data.append(f"{'L' if is_joined else 'M'}{across(at):.1f} {down(value):.1f}")
    return "".join(data)


def axes() -> str:
    """Return the axes, with a mark and a number at each unit."""
    parts = [f'<path class="axis" d="M{across(LEFT)} {down(0)}H{across(RIGHT)}M{across(0)} {down(LOW)}V{down(HIGH)}"/>']
    parts += [text(across(at), down(0) + 12, f"{at:g}") for at in (-3, -2, -1, 1, 2, 3)]
    parts += [text(across(0) - 9, down(at) + 4, f"{at:g}") for at in (-4, -2, 2, 4)]
    return "".join(parts)


def text(x: float, y: float, words: str) -> str:
    """Return words of an SVG."""
    return f'<text x="{x:g}" y="{y:g}">{words.replace("-", "−")}</text>'


def across(x: float) -> float:
    """Return where an argument is in the plot."""
    return MARGIN + (WIDTH - 2 * MARGIN) * (x - LEFT) / (RIGHT - LEFT)


def down(y: float) -> float:
    """Return where a value is in the plot."""
    return MARGIN / 2 + (HEIGHT - MARGIN) * (HIGH - y) / (HIGH - LOW)
