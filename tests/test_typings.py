"""The TensorFlow stub in typings/ must not declare names that TensorFlow lacks."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

STUB = Path(__file__).parents[1] / "typings" / "tensorflow"
# `_aliases` exists only in the stub: code may import it only for type checking.
MODULES = sorted(path for path in STUB.rglob("*.pyi") if path.stem != "_aliases")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(STUB)))
def test_stub_matches_tensorflow(path: Path) -> None:
    parts = [part for part in path.relative_to(STUB).with_suffix("").parts if part != "__init__"]
    # Public modules are reachable only as attributes, private ones only by import.
    is_private = parts[:1] in (["python"], ["compiler"])
    module = importlib.import_module(".".join(["tensorflow", *parts])) if is_private else reduce(getattr, parts, tf)
    assert list(mistakes(path.read_text(), module)) == []


@pytest.mark.parametrize(
    ("stub", "mistake"),
    [
        ("def soft_plus(x): ...", "soft_plus: not in TensorFlow"),
        ("nan: float", "nan: not in TensorFlow"),
        ("from tensorflow import soft_plus as soft_plus", "soft_plus: not in TensorFlow"),
        ("def stop_gradient(x): ...", "stop_gradient: parameter 'x' stands where TensorFlow has 'input'"),
        (
            "def stop_gradient(input, nom=None): ...",
            "stop_gradient: parameter 'nom' stands where TensorFlow has 'name'",
        ),
        ("def cast(x, name=None, dtype=None): ...", "cast: parameter 'name' stands where TensorFlow has 'dtype'"),
        ("def cast(x, dtype=None): ...", "cast: parameter 'dtype' has a default here, none in TensorFlow"),
        ("def cast(x): ...", "cast: parameter 'dtype' is required in TensorFlow"),
        ("def cast(x, dtype, *, nom=None): ...", "cast: TensorFlow has no parameter 'nom'"),
        ("def cast(x, dtype, name, casting): ...", "cast: TensorFlow has no parameter 'casting'"),
        ("class Tensor:\n    def numpi(self): ...", "Tensor.numpi: not in TensorFlow"),
        ("class Graph:\n    def device(self, name): ...", "Graph.device: parameter 'name' stands where TensorFlow has"),
        (
            "class GradientTape:\n    def __init__(self, persist=False): ...",
            "GradientTape.__init__: parameter 'persist'",
        ),
    ],
)
def test_a_false_stub_is_found(stub: str, mistake: str) -> None:
    found = list(mistakes(stub, tf))
    assert len(found) == 1
    assert found[0].startswith(mistake)


def mistakes(stub: str, module: Any) -> Iterator[str]:
    """Yield the differences between the stub of a module and the module."""
    for node in ast.parse(stub).body:
        for name in sorted(public_names(node)):
            if not hasattr(module, name):
                yield f"{name}: not in TensorFlow"
            elif isinstance(node, ast.FunctionDef):
                yield from misfits(node, getattr(module, name), name)
            elif isinstance(node, ast.ClassDef):
                yield from class_mistakes(node, getattr(module, name))


def public_names(node: ast.stmt) -> set[str]:
    """Return the public names that a statement of a stub defines."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            names = {node.name}
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            names = {name}
        case ast.ImportFrom():
            names = {alias.name for alias in node.names if alias.asname == alias.name}
        case _:
            names = set[str]()
    return {name for name in names if not name.startswith("_") or name == "__version__"}


def class_mistakes(node: ast.ClassDef, real: type) -> Iterator[str]:
    """Yield the members of a stub's class that TensorFlow's class lacks or has with other parameters."""
    homes = (real, *stand_ins(real))
    for member in node.body:
        if isinstance(member, ast.FunctionDef):
            home = next((home for home in homes if hasattr(home, member.name)), None)
            if home is None:
                yield f"{node.name}.{member.name}: not in TensorFlow"
            elif member.name == "__init__" or not member.name.startswith("__"):
                yield from misfits(member, getattr(home, member.name), f"{node.name}.{member.name}", real)
        elif isinstance(member, ast.AnnAssign | ast.Assign):
            yield from (
                f"{node.name}.{name}: not in TensorFlow" for name in public_names(member) if not has(homes, name)
            )


def has(homes: tuple[Any, ...], name: str) -> bool:
    return any(hasattr(home, name) for home in homes)


def stand_ins(real: type) -> list[Any]:
    """Return the objects that have the members that a class itself does not show."""
    if real is tf.Tensor:
        return [type(tf.constant(0.0))]
    if real is tf.types.experimental.PolymorphicFunction:
        return [tf.function(tf.identity)]
    if real is tf.types.experimental.ConcreteFunction:
        return [tf.function(tf.identity).get_concrete_function(tf.TensorSpec([]))]
    return [real()] if hasattr(real, "DESCRIPTOR") else []


def misfits(node: ast.FunctionDef, real: Any, name: str, owner: Any = None) -> Iterator[str]:
    """Yield the differences between a stub function's parameters and the real ones; the stub may omit the last."""
    if isinstance(real, property) or any(getattr(d, "id", None) == "property" for d in node.decorator_list):
        return
    if hasattr(owner, "DESCRIPTOR"):
        # The constructor of a protocol buffer has no signature: its parameters are the message's fields.
        real_names = [field.name for field in owner.DESCRIPTOR.fields]
        yield from (f"{name}: no field {a.arg!r}" for a in node.args.kwonlyargs if a.arg not in real_names)
        return
    try:
        parameters = [p for p in inspect.signature(real).parameters.values() if p.name not in ("self", "cls")]
    except ValueError:
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    theirs = {p.name: p for p in parameters}
    ours = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
    with_default = {a for a in ours[len(ours) - len(node.args.defaults) :] if node.args.defaults}
    with_default |= {a.arg for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None}
    keywords = [a.arg for a in node.args.kwonlyargs]
    for our_name, real_name in zip(ours, theirs, strict=False):
        if our_name != real_name:
            yield f"{name}: parameter {our_name!r} stands where TensorFlow has {real_name!r}"
            return
    for extra in [*ours[len(theirs) :], *(k for k in keywords if k not in theirs)]:
        yield f"{name}: TensorFlow has no parameter {extra!r}"
    for p in parameters:
        if p.default is p.empty and p.name in with_default:
            yield f"{name}: parameter {p.name!r} has a default here, none in TensorFlow"
        elif p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.name not in (*ours, *keywords):
            yield f"{name}: parameter {p.name!r} is required in TensorFlow"
