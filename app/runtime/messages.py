"""The messages of exceptions from an op, for clients: bounded, printable, without nodes, files or tracebacks.

The author's code may raise anything, so a message may have any length and any characters. Each pattern takes linear
time: it starts only where its text can start, and never backtracks.
"""

import re

import tensorflow as tf

from app.errors import MAX_TEXT, clip
from ops import replace_paths
from pullback.wording import without_terminal_codes

# Longer texts are cut in the middle: TensorFlow puts the reason at the beginning or at the end.
KEPT = 1 << 13
TRACEBACK = "Traceback (most recent call last)"
# In messages of TensorFlow when XLA cannot compile a graph; their first line has the reason.
XLA = re.compile(r"tf2xla conversion failed|unsupported operations|compile_device_type|uncompilable|XLA_[CG]PU_JIT")

_CONVERSION = re.compile(
    r"tf2xla conversion failed while converting [^\n]*?\]\. |Run with TF_DUMP\S* and \S* to obtain[^\n]*?\. "
)
_NODE = re.compile(r"\{\{[^{}]*+\}\}|\[\[[^\[\]]*+\]\]|\[Op:[^\[\]]*+\]( name: $)?")
# Keras ends its errors with the arguments of the call.
_ARGUMENTS = "\nArguments received by "
_FRAME = re.compile(r"File \"[^\"\n]*+\", line \d+")
_NOISE = (
    "Traceback",
    "Detected at",
    "^",
    "File",
    "Node",
    "<stack",
    "Graph execution error",
    "in user code",
)
# XLA puts these after the reason.
_AFTER = ("Stack trace", "dummy_file_name")
# Two dots end the scope: TensorFlow may add a number to a name that is taken.
_SCOPE = re.compile(r"graph_node\.([A-Za-z][A-Za-z0-9_]{0,63})\.([a-z][a-z0-9_.]*?)\.\.")


def text_of(error: BaseException) -> str:
    """Return the text of an exception, without terminal codes: at most ``KEPT`` characters of its beginning and end."""
    try:
        text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    except Exception:  # noqa: BLE001 - the author's __str__ may raise anything
        return ""
    return without_terminal_codes(text if len(text) <= 2 * KEPT else f"{text[:KEPT]}\n{text[-KEPT:]}")


def message_of(error: BaseException) -> str:
    """Return the message of an exception in one line.

    Of a graph's error, that is the text after the nodes; of XLA's, the first line; of a Python function's that
    TensorFlow called, the text before the traceback.
    """
    text = text_of(error)
    before, _, after = text.partition(_ARGUMENTS)[0].partition(TRACEBACK)
    if not (kept := _lines(before)):
        # The last line of a traceback that is not indented has the exception.
        kept = [line for line in _lines(after) if not line.startswith(" ")][-1:]
    if XLA.search(text):
        kept = kept[:1]
    return clip(without_paths(" ".join(kept)), MAX_TEXT) or type(error).__name__


def without_paths(text: str) -> str:
    """Return a text without the paths of files on this machine."""
    return replace_paths(_FRAME.sub("…", text), lambda path: "…")


def _lines(text: str) -> list[str]:
    """Return the lines of a text that are neither nodes nor stacks; of a graph's error those after the stack."""
    kept: list[str] = []
    is_graph, stack_indent = "Graph execution error" in text, len(text)
    for line in text.splitlines():
        stripped = _NODE.sub("", _CONVERSION.sub("", line)).rstrip()
        content = stripped.lstrip()
        indent = len(stripped) - len(content)
        if content.startswith(_AFTER):
            stack_indent = len(text)
        elif content.startswith(_NOISE):
            stack_indent = indent if content.startswith("File") else len(text)
            kept = [] if is_graph else kept
        elif content and indent <= stack_indent:  # a line of a stack that is indented more is source code
            kept.append(stripped)
    return kept


# The kernels of its gradients have the scope in their names too. TensorFlow optimizes graphs in the order of names,
# so that the last bits of results may depend on them: only a graph that looks for the cause of an error has these.
def node_text(name: str, op: str) -> str:
    """Return how messages name a node: ``node norm (safe_norm)``."""
    return f"node {name} ({op})"


def node_scope(name: str, op: str) -> tf.name_scope:
    """Return the scope of a node, which names its kernels while a graph is built."""
    return tf.name_scope(f"graph_node.{name}.{op}..")


def node_of(error: BaseException) -> str:
    """Return the node whose kernel has raised an error, as ``node_text``; "" if the error names none."""
    # A graph may be a node of another: the first scope is the outermost.
    found = _SCOPE.search(text_of(error))
    return node_text(found[1], found[2]) if found else ""
