"""What Python and notebooks show of an op."""

from collections.abc import Sequence
from html import escape
from typing import Protocol

from pullback.ops._slots import Input, Output


class Declared(Protocol):
    """An op, as far as it is shown."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def inputs(self) -> Sequence[Input]: ...
    @property
    def outputs(self) -> Sequence[Output]: ...


def text_of(op: Declared) -> str:
    """Return an op with its inputs and outputs: ``Op(cube: x[...] -> y[...]; x³)``."""
    inputs, outputs = (", ".join(f"{slot.name}{_shape(slot)}" for slot in side) for side in (op.inputs, op.outputs))
    return f"Op({op.name}: {inputs} -> {outputs}; {op.summary})"


def html_of(op: Declared, attrs: Sequence[str]) -> str:
    """Return a table of the inputs, the outputs and the attributes of an op."""
    rows = [("input" if slot in op.inputs else "output", slot) for slot in (*op.inputs, *op.outputs)]
    cells = [
        (
            kind,
            slot.name,
            _shape(slot),
            ", ".join(slot.shown_dtypes),
            "yes" if slot.differentiable else "none",
            slot.doc,
        )
        for kind, slot in rows
    ]
    cells += [("attribute", name, "", "", "", "") for name in attrs]
    head = "".join(f"<th>{title}</th>" for title in ("", "name", "shape", "dtypes", "gradient", "meaning"))
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in cells)
    title = f"<b>{escape(op.name)}</b>: {escape(op.summary)}"
    return f"<div><p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _shape(slot: Input | Output) -> str:
    return f"[{', '.join(map(str, slot.shown_shape))}]"
