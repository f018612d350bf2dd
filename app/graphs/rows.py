"""Which rows of a graph are independent, and how much work it is: by the batching and the cost of its nodes."""

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from app.graphs.contract import Contract, Pattern, Typed
from ops import ANY_SHAPE, Attrs, Batching, Input, InvalidInput, Output


def batching(contract: Contract, attrs: type[Attrs]) -> Batching | Callable[[Any], Batching]:
    """Return the batching of a graph, a function of its attributes if a static one is bound."""
    if not attrs.static_names():
        return _batching(contract, attrs())
    return lambda values: _batching(contract, values)


def _batching(contract: Contract, values: Attrs) -> Batching:
    kinds: list[Batching] = [each.node.op.batching_for(each.node.attrs(values)) for each in contract.nodes]
    slots = (*contract.inputs, *contract.outputs)
    if set(kinds) == {"elementwise"}:
        if all(slot.shape == ANY_SHAPE for slot in slots):
            return "elementwise"
    elif "none" in kinds or any(each.node.op.shared for each in contract.nodes):
        return "none"
    first = slots[0].shape[:1]
    if not first or isinstance(first[0], int) or any(slot.shape[:1] != first for slot in slots):
        return "none"
    if first != ("...",) and any(first[0] in slot.shape[1:] for slot in slots):
        return "none"
    has_rows = all(_has_rows(each, kind, first) for each, kind in zip(contract.nodes, kinds, strict=True))
    return "none" if not has_rows else "leading_axes" if first == ("...",) else "leading_axis"


def _has_rows(each: Typed, kind: Batching, first: Pattern) -> bool:
    """Return whether the rows of the graph are independent rows of a node: its inputs and outputs begin with them."""
    for slot in (*each.node.op.inputs, *each.node.op.outputs):
        if slot.name not in each.filled or isinstance(slot, Output):
            # The rows of the op are those of its first symbol.
            symbol = slot.shape[:1]
            if not symbol or isinstance(symbol[0], int) or each.symbols[symbol[0]][:1] != first:
                return False
    return kind != "leading_axis" or first != ("...",)


def cost(contract: Contract) -> Callable[[Mapping[str, Any]], int]:
    """Return the function that returns the multiply-adds of a graph: the sum over its nodes."""

    def total(dims: Mapping[str, Any]) -> int:
        return sum(_cost(each, dims) for each in contract.nodes)

    return total


def sizes(contract: Contract) -> Callable[[Mapping[str, Any]], Mapping[str, int]] | None:
    """Return the function that returns the sizes that nodes compute by formulas, ``None`` if there are none.

    It raises ``InvalidInput`` for shapes that a node does not accept.
    """
    if not any(each.node.op.sizes for each in contract.nodes):
        return None

    def found(dims: Mapping[str, Any]) -> Mapping[str, int]:
        known = dict(dims)
        for each in contract.nodes:
            if each.node.op.sizes is not None:
                _add_sizes(each, each.node.op.sizes, known)
        return {name: size for name, size in known.items() if name not in dims}

    return found


def _add_sizes(each: Typed, formula: Callable[[Mapping[str, Any]], Mapping[str, int]], known: dict[str, Any]) -> None:
    values = (value for _, value in each.node.values())
    name = next((value.name for value in values if not value.node), each.node.name)
    try:
        computed = formula(_sizes_of(each, known))
    except KeyError:
        return  # a size depends on values
    except InvalidInput as error:
        message = f"node {each.node.name} ({each.node.op.name}): {error.message}"
        raise InvalidInput(name, message, expected=error.expected, got=error.got) from None
    for symbol, size in computed.items():
        [of_graph] = each.symbols[symbol]
        before = of_graph if isinstance(of_graph, int) else known.setdefault(of_graph, size)
        if before != size:
            message = f"node {each.node.name} ({each.node.op.name}) has another size than what uses it"
            raise InvalidInput(name, message, expected=f"{of_graph} = {before}", got=str(size))


def _cost(each: Typed, dims: Mapping[str, Any]) -> int:
    own, numbers = _sizes_of(each, dims), 0
    for slot in (*each.node.op.inputs, *each.node.op.outputs):
        numbers += _numbers(slot, own)
    own_cost = each.node.op.cost
    try:
        return numbers if own_cost is None else max(numbers, own_cost(own))
    except KeyError:
        return numbers  # a size depends on values


def _numbers(slot: Input | Output, dims: Mapping[str, Any]) -> int:
    total = 1
    for size in slot.shape:
        known = size if isinstance(size, int) else dims.get(size, 1)
        total *= math.prod(cast("tuple[int, ...]", known)) if isinstance(known, tuple) else known
    return total


def _sizes_of(each: Typed, dims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known sizes of the symbols of a node, for those of the graph."""
    found = {name: _size(name, pattern, dims) for name, pattern in each.symbols.items()}
    return {name: size for name, size in found.items() if size is not None}


def _size(name: str, pattern: Pattern, dims: Mapping[str, Any]) -> Any:
    """Return the size of a symbol of a node, a shape for ``"..."``, or ``None`` if it is not known."""
    shape: list[int] = []
    for size in pattern:
        known = size if isinstance(size, int) else dims.get(size)
        if known is None:
            return None
        shape += known if isinstance(known, tuple) else (known,)
    return tuple(shape) if name == "..." else shape[0]
