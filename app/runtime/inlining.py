"""Functions of an author, made by ``tf.function``, as parts of the graph that calls them.

Their operations are then visible to what watches the graph.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

# Private, because the public option to run functions as their Python is for all threads, and without autograph.
from tensorflow.python.eager.polymorphic_function import autograph_util

# Private, because nothing public tells that a function is called.
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function


class _Thread(threading.local):
    """Whether calls of functions are inlined on this thread."""

    is_inlining = False


_thread, _is_installed = _Thread(), False


def install() -> None:
    """Let ``inlined`` work; call this before any program is built."""
    global _is_installed
    if _is_installed:
        return
    _is_installed, owner = True, cast(Any, Function)
    call = owner.__call__

    def called(function: Any, *args: Any, **named: Any) -> Any:
        if not _thread.is_inlining:
            return call(function, *args, **named)
        python = function.python_function
        if function._autograph:
            python = autograph_util.py_func_from_autograph(python, function._experimental_autograph_options)
        return python(*args, **named)

    owner.__call__ = called


@contextmanager
def inlined() -> Generator[None]:
    """Inside this block, this thread builds the operations of a function where it is called."""
    before, _thread.is_inlining = _thread.is_inlining, True
    try:
        yield
    finally:
        _thread.is_inlining = before
