"""Variables and tensors of a page that its functions use: which graphs cannot read them, and their names for errors.

A graph function captures them. A v1 graph cannot, nor can a graph that XLA compiles in a session.
"""

import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.runtime.messages import text_of
from app.runtime.source_lines import author_line, is_author
from ops import OpFault

# The most names in a message.
SHOWN = 3
CURE = 'an input of the op, an array of NumPy, such as W.numpy(), or Op(modes=("graph", "eager"))'
_VARIABLE = re.compile(r"<tf\.Variable '([^'\n]+)'")


def is_capture_fault(error: BaseException) -> bool:
    """Report whether a graph could not read a variable or tensor from outside."""
    return "Attempting to capture an EagerTensor" in text_of(error)


def capture_fault(graph: tf.Graph, error: BaseException) -> OpFault:
    """Return the fault of a page whose function ``graph``, of mode graph, captures what another graph cannot read."""
    captured: Any = graph
    variables = {id(variable.handle): variable for variable in captured.variables}
    found = [_described(variables.get(id(tensor), tensor)) for tensor in captured.external_captures]
    message = f"uses {_listed(found)}, which modes xla and v1 cannot read"
    got = "what the page made when it was loaded"
    return OpFault("the op", "its state", expected=CURE, got=got, message=message, where=author_line(error))


def refusing_new_variables() -> AbstractContextManager[None]:
    """Inside this block, raise ``OpFault`` where a page makes a variable: each call, or each trace, would make one."""
    return tf.variable_creator_scope(_refuse)


def names_in(text: str) -> str:
    """Return the names of the variables that a message of TensorFlow shows."""
    names = dict.fromkeys(_VARIABLE.findall(text))
    return _listed([_variable(name, lambda value, name=name: getattr(value, "name", "") == name) for name in names])


def _refuse(next_creator: Callable[..., Any], **made: Any) -> Any:
    del next_creator
    name = f", {made['name']}" if isinstance(made.get("name"), str) else ""
    expected = "one that the page makes when it is loaded, as by layer.build(shape), or an input of the op"
    got, message = "a new one in each call", f"makes a variable{name}"
    raise OpFault("a function of the op", "its state", expected=expected, got=got, message=message)


def _described(captured: Any) -> str:
    if isinstance(captured, tf.Variable):
        return _variable(captured.name, lambda value: value is captured)
    is_resource = captured.dtype == tf.resource
    kind = "table or random generator" if is_resource else f"{captured.dtype.name} tensor of shape {captured.shape}"
    name = _name(lambda value: value is captured or getattr(value, "resource_handle", None) is captured)
    return f"{name} (a {kind})" if name else f"a {kind}"


def _variable(name: str, is_it: Callable[[Any], bool]) -> str:
    return f"{_name(is_it) or name.removesuffix(':0')} (a variable)"


def _listed(names: Sequence[str]) -> str:
    shown = names[:SHOWN] if len(names) <= SHOWN else [*names[:SHOWN], f"{len(names) - SHOWN} more"]
    return " and ".join(shown)


def _name(is_it: Callable[[Any], bool]) -> str:
    """Return the name of a value in an author's module, such as ``W`` or ``layer.kernel``; "" if none is found."""
    return next((name for name, value in _values_of_pages() if is_it(value)), "")


def _values_of_pages() -> Generator[tuple[str, Any]]:
    """Yield the globals of authors' modules by name, and the attributes of each."""
    for module in list(sys.modules.values()):
        if is_author(Path(getattr(module, "__file__", None) or "")):
            for name, value in list(vars(module).items()):
                yield name, value
                attributes: dict[str, Any] = getattr(value, "__dict__", {})
                if not isinstance(value, type | type(sys)):
                    yield from ((f"{name}.{each}", inner) for each, inner in list(attributes.items()))
