"""The arrays in nested dicts, lists and tuples, by name: those of ``{"w": [a, b]}`` are ``w.0`` and ``w.1``."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

Tree: TypeAlias = Any


def flatten(tree: Tree, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree by name. A leaf is anything but a dict, list or tuple; ``name`` is the tree's."""
    for key, child in _children(tree):
        yield from flatten(child, f"{name}.{key}" if name else key)
    if not isinstance(tree, Mapping | list | tuple):
        yield name, tree


def rebuild(tree: Tree, name: str, leaf: Callable[[str, Any], Any]) -> Tree:
    """Return the tree with ``leaf(name, value)`` in place of each leaf."""
    if not isinstance(tree, Mapping | list | tuple):
        return leaf(name, tree)
    found = {key: rebuild(child, f"{name}.{key}" if name else key, leaf) for key, child in _children(tree)}
    if isinstance(tree, Mapping):
        return dict(zip(cast(Mapping[Any, Any], tree), found.values(), strict=True))
    kind = cast(Any, type(cast(Any, tree)))
    return kind(*found.values()) if hasattr(kind, "_fields") else kind(found.values())


def as_arrays(tree: Tree) -> Tree:
    """Return the tree with an array in place of each list of numbers."""
    if isinstance(tree, Mapping):
        return {key: as_arrays(child) for key, child in cast(Mapping[Any, Any], tree).items()}
    if isinstance(tree, list):
        items = cast(list[Any], tree)
        is_flat = bool(items) and all(isinstance(item, int | float) for item in items)
        return np.asarray(items) if is_flat else [as_arrays(item) for item in items]
    return tree


def _children(tree: Tree) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        yield from ((str(key), child) for key, child in cast(Mapping[Any, Any], tree).items())
    elif isinstance(tree, list | tuple):
        names = getattr(cast(Any, tree), "_fields", None)
        for i, child in enumerate(cast(list[Any], tree)):
            yield (str(i) if names is None else names[i]), child
