"""What the functions of a page use besides their arguments, the faults of that, and its names in their messages.

Variables, and random numbers that differ in each call, are refused. A graph function can capture tensors and tables; a
v1 graph cannot, nor can a graph that XLA compiles in a session.
"""

import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf

from app.runtime.kernels import CHANGES
from app.runtime.messages import message_of, text_of
from app.runtime.repairs.variable_arguments import observing_reads
from app.runtime.source_lines import author_line, calling_line, is_author, node_line
from ops import Mode, OpFault

# The most names in a message.
SHOWN = 3
CURE = 'an input of the op, an array of NumPy, such as W.numpy(), or Op(modes=("graph", "eager"))'
PARAMETER = 'parameters=(Parameter("w", W),), and w behind the inputs of functions'
FUNCTION = "a function of its arguments alone, which returns what it computes, and draws by tf.random.stateless_*"
_VARIABLE = re.compile(r"<tf\.Variable '([^'\n]+)'")
_OF_CUSTOM_GRADIENT = "grad_fn must accept keyword argument 'variables'"
# What Python and TensorFlow say of a size that is None, and of a shape of unknown rank.
_UNKNOWN = re.compile(r"None|unknown (?:rank|shape|dimension|TensorShape)|fully defined|static|infer (?:argument|num)")
_CURE = "tf.shape(x)[i], functions that take any size, or a size that the slot declares, as in shape=(3,)"


class StateFault(OpFault):
    """A page uses variables, random numbers or other state in a way that is refused."""


def is_capture_fault(error: BaseException) -> bool:
    """Report whether a graph could not read a variable or tensor from outside."""
    return "Attempting to capture an EagerTensor" in text_of(error)


def capture_fault(graph: tf.Graph, mode: Mode, where: str = "") -> StateFault:
    """Return the fault of a page whose function ``graph`` captures what ``mode`` cannot read, at a line of the page."""
    captured: Any = graph
    found = list(map(_described, captured.external_captures))
    message, got = f"uses {_listed(found)}, which mode {mode} cannot read", "what the page made when it was loaded"
    return _fault(message, CURE, got, where)


def variable_fault(graph: tf.Graph) -> StateFault | None:
    """Return the fault of a page whose function reads or changes variables in ``graph``, ``None`` if it does not."""
    function: Any = graph
    variables = {id(variable.handle): variable for variable in function.variables}
    found = [(variables[id(outer)], inner) for outer, inner in function.captures if id(outer) in variables]
    if not found:
        return None
    users = [node for _, inner in found for node in inner.consumers()]
    changing = [node for node in users if node.type.startswith(CHANGES)]
    names = [_variable(variable.name, lambda value, it=variable: value is it) for variable, _ in found]
    lines: list[str] = [node_line(node) for node in changing or users]
    return _fault_of_variables(names, where=next(filter(None, lines), ""), are_changed=bool(changing))


def variable_fault_in(error: BaseException) -> StateFault | None:
    """Return the fault of a page whose function of ``tf.custom_gradient`` uses variables, by TensorFlow's error."""
    text = text_of(error)
    names = dict.fromkeys(_VARIABLE.findall(text)) if _OF_CUSTOM_GRADIENT in text else ()
    found = [_variable(name, lambda value, name=name: getattr(value, "name", "") == name) for name in names]
    return _fault_of_variables(found, where=author_line(error)) if found else None


def random_fault(graph: tf.Graph) -> StateFault | None:
    """Return the fault of a page whose function draws random numbers in ``graph`` by kernels that have a state.

    They draw others in each call, with a seed too, which only starts the sequence.
    """
    functions = {each.signature.name: each.node_def for each in graph.as_graph_def().library.function}
    drawing = dict[str, str]()

    def kernel_of(nodes: Iterable[Any]) -> str:
        """Return the kernel that draws in these nodes, or in the functions that they call; "" if there is none."""
        for node in nodes:
            if {"seed", "seed2"} <= set(node.attr):
                return str(node.op)
            for attr in node.attr.values():
                for name in (attr.func.name, *(function.name for function in attr.list.func)):
                    if name in functions and name not in drawing:
                        drawing[name] = ""
                        drawing[name] = kernel_of(functions[name])
                    if found := drawing.get(name):
                        return found
        return ""

    for node in graph.get_operations():
        if drawn := kernel_of([node.node_def]):
            message, got = f"draws random numbers that differ in each call ({drawn})", "a kernel with a state"
            expected = "tf.random.stateless_uniform(shape, seed=(1, 2)) or another of tf.random.stateless_*"
            return _fault(message, expected, got, node_line(node))
    return None


@contextmanager
def refusing_new_variables() -> Generator[None]:
    """Inside this block, raise ``OpFault`` where a page makes a variable: each call, or each trace, would make one."""
    faults = list[StateFault]()

    def refuse(next_creator: Callable[..., Any], **made: Any) -> NoReturn:
        del next_creator
        name = f", {made['name']}" if isinstance(made.get("name"), str) else ""
        expected = f"one made when the page is loaded, as by layer.build(shape), and {PARAMETER}"
        faults.append(_fault(f"makes a variable{name}", expected, "a new one in each call", calling_line()))
        raise faults[0]

    with tf.variable_creator_scope(refuse), _raised_at_the_end(faults):
        yield


@contextmanager
def refusing_reads() -> Generator[None]:
    """Inside this block of eager mode, raise ``OpFault`` where a page reads a variable, which a graph would capture.

    A model reads its variables in place of the values of the request where its function has returned.
    """
    faults = list[StateFault]()

    def refuse(variable: Any) -> NoReturn:
        name = _variable(variable.name, lambda value: value is variable)
        faults.append(_fault_of_variables([name], where=calling_line()))
        raise faults[0]

    with observing_reads(refuse), _raised_at_the_end(faults):
        yield


@contextmanager
def _raised_at_the_end(faults: Sequence[StateFault]) -> Generator[None]:
    """Raise the first of the faults, also if code of the page or of a library catches it, or raises another error."""
    try:
        yield
    except Exception as error:
        if faults and error is not faults[0]:
            raise faults[0] from error
        raise
    if faults:
        raise faults[0]


def _fault_of_variables(names: Sequence[str], *, where: str, are_changed: bool = False) -> StateFault:
    action, expected = ("changes", FUNCTION) if are_changed else ("reads", PARAMETER)
    return _fault(f"{action} {_listed(names)}", expected, "state that the page does not declare", where)


def _fault(message: str, expected: str, got: str, where: str) -> StateFault:
    return StateFault("the op", "its state", expected=expected, got=got, message=message, where=where)


def _described(captured: Any) -> str:
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


def static_shape_fault(error: BaseException) -> OpFault | None:
    """Return the fault behind an error of a trace, where the op runs eagerly: a size was ``None``; or else ``None``."""
    if _UNKNOWN.search(text_of(error)) is None:
        return None
    message, got = "needs a size that is unknown while TensorFlow traces", f"None ({message_of(error)})"
    return OpFault("x.shape[i]", "a static shape", expected=_CURE, got=got, message=message, where=author_line(error))
