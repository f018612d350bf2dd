"""The contract: what the op's functions return is what TensorFlow and the op's page say they return.

Count, type, shape and dtype of outputs and gradients at both orders, eagerly and in a graph; a gradient for every input
that is declared differentiable, and none for the others.
"""

from collections.abc import Iterator

import numpy as np

from app.derivatives import forward, program_at, vjp
from app.errors import Overloaded, PullbackError
from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding
from app.modes import run
from app.op_errors import op_errors
from ops import FLOATS, Mode

NAME = "contract"
MODES: tuple[Mode, ...] = ("graph", "eager")


def check(target: Target) -> Iterator[Finding]:
    """Ask for everything once in each dtype, and let the service's own refusals speak."""
    for mode in (mode for mode in MODES if mode in target.op.modes):
        for dtype in target.dtypes:
            yield _asked(target, mode, dtype)
    yield from _undeclared(target)


def _asked(target: Target, mode: Mode, dtype: str) -> Finding:
    about = {"mode": mode, "dtype": dtype, "points": len(target.sites)}
    try:
        for site in target.sites:
            if (here := target.at(site, dtype)) is not None:
                _ask(here.moved(mode, target.device), max(target.options.orders))
    except Overloaded as error:
        return Finding(NAME, "skipped", error.detail, **about)
    except PullbackError as error:
        slot = str(error.entries[0].loc[-1]) if error.entries else ""
        inputs = [one.name for one in target.op.inputs]
        return Finding(NAME, "fail", error.detail, input=slot if slot in inputs else None, **about)
    return Finding(NAME, "pass", "count, types, shapes and dtypes of outputs and gradients are as declared", **about)


def _ask(site: Site, order: int) -> None:
    """Ask for everything; where that fails, in the order in which a fault is plainest."""
    try:
        if order > 1:
            _ = site.values
    except Overloaded:
        raise
    except PullbackError:
        _first_order(site)
        raise
    else:
        if order == 1:
            _first_order(site)


def _first_order(site: Site) -> None:
    forward(site.point)
    vjp(site.point, tuple(site.vectors), site.cotangents, batched=False, outputs=False)


def _undeclared(target: Target) -> Iterator[Finding]:
    """Look for gradients of inputs that are declared to have none."""
    for slot in target.op.inputs:
        if slot.differentiable or target.op.dtype_of(slot, target.widest) not in FLOATS:
            continue
        about = {"order": 1, "input": slot.name, "mode": "graph", "dtype": target.widest, "points": len(target.sites)}
        if any(_has_gradient(site, slot.name) for site in target.sites):
            told = f"{slot.name} is declared not differentiable, but has a gradient that is not 0"
            yield Finding(NAME, "fail", told, **about)
        else:
            yield Finding(NAME, "pass", f"{slot.name} has no gradient, as declared", **about)


def _has_gradient(site: Site, name: str) -> bool:
    # Cotangents of all outputs but those of which there are none: a missing gradient is then no fault.
    program, leaves = program_at(site.point, "vjp", wrt=(name,), cotangents=site.cotangents)
    try:
        with op_errors(site.point.op.name):
            found = run(program, "graph", leaves, site.point.device)
    except Overloaded:
        raise
    except PullbackError:
        return False
    dx = found.get(("gradients", name))
    return dx is not None and bool(np.any(dx))
