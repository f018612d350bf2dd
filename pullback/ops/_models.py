"""Models as ops: what a Keras model or a ``tf.Module`` says of its op, where its variables become parameters."""

import importlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from pullback.ops._fields import shown
from pullback.ops._parameters import Parameter
from pullback.ops._slots import ANY_SHAPE, FLOATS, Input, Output

Fields = dict[str, Any]

# A model and a module have the tensors of one call at a time.
_calling = threading.RLock()
# The symbols of the first axis of unknown size, which has the examples, and of others.
ROWS, OTHERS = "N", "ABCDEFGHIJKLM"
MAX_NAME = 56
# What Keras names the state of a random generator.
SEED = "seed_generator_state"
_NAMED_BY_KERAS = re.compile(r"(keras_tensor|input_layer)(_\d+)?")


def fields_of_keras(model: Any) -> Fields:
    """Return the fields of the op of a Keras model at inference: function, inputs, outputs, parameters and source.

    Raises ``ValueError`` for a model whose inputs are not known.
    """
    if not getattr(model, "built", False) or not getattr(model, "inputs", None):
        cure = "begin it with keras.Input(shape), or call it once on a keras.Input"
        raise ValueError(f"Op.from_keras: expected a built Keras model with known inputs, got {shown(model)}; {cure}")
    scope = importlib.import_module("keras").StatelessScope
    variables = _distinct(model.weights)
    structure = getattr(model, "input", model.inputs[0])  # a Sequential has none before it is called
    results: Any = getattr(model, "output", None)
    inputs = slots(Input, "x", model.inputs, _names_of_inputs(model.inputs, structure))
    outputs = slots(Output, "y", model.outputs, _keys(results))

    def called(tensors: Sequence[Any], stated: Sequence[Any], **attrs: Any) -> Any:
        given = tf.nest.pack_sequence_as(structure, tensors[: len(inputs)])
        with _calling, scope(state_mapping=list(zip(stated, tensors[len(inputs) :], strict=True))):
            return _flat(model(given, training=False, **attrs))

    seeds = _unused_seeds(model, variables, called)
    states = [seed.numpy() for seed in seeds]

    def forward(*tensors: Any, **attrs: Any) -> Any:
        return called([*tensors, *map(tf.constant, states)], [*variables, *seeds], **attrs)

    paths = [variable.path for variable in variables]
    if all(path.startswith(f"{model.name}/") for path in paths):
        paths = [path.removeprefix(f"{model.name}/") for path in paths]
    parameters = _parameters(paths, variables, inputs)
    return {"function": forward, "inputs": inputs, "outputs": outputs, "parameters": parameters, "source": "Keras"}


def fields_of_module(module: tf.Module, inputs: Sequence[Input]) -> Fields:
    """Return the fields of the op of a module's ``__call__``: function, parameters and source.

    Raises ``ValueError`` for a module whose variables are not attributes, or in their lists and dictionaries, and for
    one whose parts are functions of TensorFlow: they would keep the variables of their first call.
    """
    if not callable(module):
        raise ValueError(f"Op.from_module: expected a module with __call__, got {shown(module)}")
    kind: Any = type(module)
    called = kind.__call__
    call: Any = getattr(called, "python_function", called)
    for part in (module, *module.submodules):
        own = {**{name: getattr(type(part), name) for name in dir(type(part))}, **vars(part)}
        names = [name for name in own if part is not module or name != "__call__"]
        if kept := [name for name in names if hasattr(own[name], "python_function")]:
            expected = f"{type(part).__name__}.{kept[0]} without @tf.function"
            raise ValueError(f"Op.from_module: expected {expected}, which only the __call__ of the module may have")
    places = list(_places(module, "", set()))
    variables = _distinct(variable for _, _, variable, _ in places)
    if missing := [each.name for each in module.variables if not any(each is known for known in variables)]:
        expected = "variables that are attributes of modules, or in their lists and dictionaries"
        raise ValueError(f"Op.from_module: expected {expected}, got {missing[0]!r}")

    def forward(*tensors: Any, **attrs: Any) -> Any:
        values = dict(zip(map(id, variables), tensors[len(inputs) :], strict=True))
        with _calling:
            try:
                for owner, key, variable, _ in places:
                    _put(owner, key, values[id(variable)])
                return _flat(call(module, *tensors[: len(inputs)], **attrs))
            finally:
                for owner, key, variable, _ in places:
                    _put(owner, key, variable)

    paths = {id(variable): path for _, _, variable, path in reversed(places)}
    parameters = _parameters([paths[id(variable)] for variable in variables], variables, inputs)
    return {"function": forward, "parameters": parameters, "source": "a tf.Module"}


def _unused_seeds(model: Any, variables: Sequence[Any], called: Callable[..., Any]) -> list[Any]:
    """Return the states of random generators that a model reads at inference, and whose draws reach no result.

    Recurrent layers with dropout draw their masks in each call.
    """
    seeds = [each for each in model.variables if each.name == SEED]
    given = [tf.TensorSpec(each.shape, each.dtype) for each in (*model.inputs, *variables, *seeds)]

    def traced(*tensors: Any) -> Any:
        return called(tensors, [*variables, *seeds])

    if not seeds:
        return []
    with suppress(Exception):  # requests and checks report what is wrong with the model
        graph: Any = tf.function(traced, autograph=False).get_concrete_function(*given).graph
        left, reached = [each.op for each in graph.outputs], set[Any]()
        while left:
            node = left.pop()
            if node not in reached:
                reached.add(node)
                left += [each.op for each in node.inputs]
        places = graph.inputs[len(given) - len(seeds) : len(given)]
        return [seed for seed, place in zip(seeds, places, strict=True) if place.op not in reached]
    return []


def _flat(result: Any) -> Any:
    """Return the results of a model in order: a tensor, or a tuple of them."""
    found = tf.nest.flatten(result)
    return found[0] if len(found) == 1 else tuple(found)


def _parameters(paths: Sequence[str], variables: Sequence[Any], inputs: Sequence[Input]) -> tuple[Parameter, ...]:
    """Return a parameter for each variable, named by its path."""
    names = named(paths, [slot.name for slot in inputs])
    return tuple([Parameter(name, each) for name, each in zip(names, variables, strict=True)])


def named(paths: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return a name for each path that is none of those that are taken."""
    names = list(taken)
    for path in paths:
        names.append(_name(path, "variable", names))
    return names[len(taken) :]


def _name(path: str, default: str, taken: Sequence[str]) -> str:
    """Return the name of a path that is not taken: in lower case, with ``_`` for anything but letters and digits."""
    stem = re.sub(r"[^a-z0-9]", "_", path.lower()).lstrip("_0123456789")[:MAX_NAME] or default
    names = (f"{stem}_{number}" if number else stem for number in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _distinct(variables: Any) -> list[Any]:
    return list({id(each): each for each in variables}.values())


def _keys(structure: Any) -> list[str]:
    """Return the keys of a dictionary, in the order in which TensorFlow flattens it; none of anything else."""
    return sorted(structure) if isinstance(structure, dict) else []  # pyright: ignore[reportUnknownArgumentType]


def _names_of_inputs(tensors: Sequence[Any], structure: Any) -> list[str]:
    """Return the names that an author has given to all inputs of a model; none, if there is one without a name."""
    names = _keys(structure) or [tensor.name for tensor in tensors]
    return [] if any(_NAMED_BY_KERAS.fullmatch(name) for name in names) else names


def slots(kind: Any, letter: str, tensors: Sequence[Any], given: Sequence[str]) -> tuple[Any, ...]:
    """Return the inputs or outputs of symbolic tensors: with the given names, or ``x``, or ``x0``, ``x1`` and so on."""
    names, slots, free = list[str](), list[Any](), iter(OTHERS)
    for i, tensor in enumerate(tensors):
        name = _name(given[i], letter, names) if given else letter if len(tensors) == 1 else f"{letter}{i}"
        sizes = () if isinstance(tensor.shape, tf.TensorShape) and tensor.shape.rank is None else tensor.shape
        shape = tuple([size or (next(free) if axis else ROWS) for axis, size in enumerate(sizes)])
        dtype = tf.dtypes.as_dtype(tensor.dtype).name
        slots.append(kind(name, (dtype,), shape or ANY_SHAPE, differentiable=dtype in FLOATS))
        names.append(name)
    return tuple(slots)


def _places(owner: Any, path: str, seen: set[int]) -> Iterator[tuple[Any, Any, tf.Variable, str]]:
    """Yield where the variables of a module are: its object, list or dictionary, the key there, itself, its path."""
    if id(owner) in seen:
        return
    seen.add(id(owner))
    for key, value in _items(owner):
        if isinstance(value, tf.Variable):
            yield owner, key, value, f"{path}{key}"
        elif not (isinstance(owner, tf.Module) and key.startswith(("_self_", "_tf_api"))):
            yield from _places(value, f"{path}{key}/", seen)


def _items(owner: Any) -> Sequence[tuple[Any, Any]]:
    if isinstance(owner, tf.Module):
        return sorted(vars(owner).items())
    if isinstance(owner, Mapping):
        return list(owner.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return list(enumerate(owner)) if isinstance(owner, list) else []  # pyright: ignore[reportUnknownArgumentType]


def _put(owner: Any, key: Any, value: Any) -> None:
    (vars(owner) if isinstance(owner, tf.Module) else owner)[key] = value
