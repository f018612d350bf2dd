"""Import the page of an op, isolate the service from mistakes in it, and report where a mistake is.

While a page is imported, it cannot read standard input, what it prints goes to the log, and a call that ends the
program is an error of the page. Afterwards the working directory, ``sys.path``, the handlers of signals, the filters of
warnings, the recursion limit, and the functions of Python, NumPy and TensorFlow are restored. A page is trusted code in
the same process: nothing prevents ``os._exit``, a crash in a library, or an import that never ends.
"""

import ast
import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

# Private: see ``_check_tensorflow``.
from tensorflow.python.eager import context

from pullback.ops._faults import OpFault
from pullback.ops._native import OWN, NotBuilt
from pullback.ops._op import Op
from pullback.ops._paths import replace_paths, without_folders
from pullback.ops._slots import Example, Input, Output
from pullback.ops._surroundings import Surroundings
from pullback.service_process import SERVICE
from pullback.wording import without_terminal_codes

# The most characters of a reason, the least before a long cure, and the most of the location of a mistake in it and of
# an error that are read.
MAX_REASON, LEAST_REASON, MAX_LOCATION, MAX_READ = 300, 160, 120, 1 << 13
# What Python says of a call of a declaration.
ARGUMENTS = re.compile(
    r"(?P<kind>\w+)\.__init__\(\) "
    r"(?:missing .*?: (?P<missing>.+)|got an unexpected keyword argument '(?P<unknown>\w+)'.*)"
)
DECLARATIONS = (Op, Input, Output, Example)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def load_page(path: Path, text: bytes | None = None) -> Op:
    """Import a page and return its ``OP``; raise what is wrong with it, which may be any ``BaseException``.

    The page finds ``ops`` wherever it is imported. With ``text``, an earlier version of the file, that is imported.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a link to nothing" if path.is_symlink() else "no regular file"
        raise TypeError(f"expected a file with Python code, got {kind}; remove it, or begin its name with _")
    with _isolated():
        # Private, because no public name does it: names of Keras' layers must not depend on pages that came before.
        if (naming := sys.modules.get("keras.src.utils.naming")) is not None:
            naming.reset_uids()
        sys.path.append(str(SERVICE))
        return _op_of(_imported(path, text), path)


def reason(error: BaseException, path: Path) -> str:
    """Return why a page cannot be served, in one line: the error, its file and line, and what to do.

    It has no folders of this machine, and no characters that JSON cannot represent.
    """
    text = _one_line(f"{type(error).__name__}: {_text(error)}".removesuffix(": "))
    cure = f"; correct {_location(error, path)} and start again"
    cure = f"{_cure_of_arguments(error)}{cure}"
    if isinstance(error, NotBuilt):
        cure = ""
    elif isinstance(error, SystemExit):
        cure = f': it ends the program; put the code of a script under if __name__ == "__main__"{cure}'
    if len(text) > (most := max(LEAST_REASON, MAX_REASON - len(cure))):
        text = f"{text[: most // 2]}…{text[len(text) - most // 2 + 1 :]}"
    return text + cure


def _cure_of_arguments(error: BaseException) -> str:
    """Return how to correct the arguments of a declaration, "" for any other error."""
    found = ARGUMENTS.fullmatch(_text(error)) if isinstance(error, TypeError) else None
    kind = next((kind for kind in DECLARATIONS if found and found["kind"] == kind.__name__), None)
    if not found or kind is None:
        return ""
    if missing := re.findall(r"'(\w+)'", found["missing"] or ""):
        return f"; write {', '.join(f'{name}=...' for name in missing)} in {kind.__name__}(...)"
    names = [declared.name for declared in dataclasses.fields(kind)]
    near = difflib.get_close_matches(found["unknown"] or "", names, n=1, cutoff=0.65)
    return f"; did you mean {near[0]}?" if near else f"; its arguments are {', '.join(names)}"


def stem(path: Path) -> str:
    """Return the name of a page's file without its ending, as text that JSON can represent."""
    return _valid(path.stem)


@contextlib.contextmanager
def noting_stop_signals() -> Generator[list[int]]:
    """Yield a list of the stop signals that arrive inside this block: an exception after one is not an error of a page.

    Their handlers are called as usual, and restored at the end, whatever a page installs.
    """
    noted: list[int] = []

    def noting(handler: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        def note(number: int, frame: Any) -> None:
            noted.append(number)
            handler(number, frame)

        return note

    with _restoring_handlers() as handlers:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, noting(handler))
        yield noted


@contextlib.contextmanager
def _restoring_handlers() -> Generator[Mapping[signal.Signals, Any]]:
    """Yield the handlers of the stop signals and restore them at the end; there are none outside of the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    handlers: dict[signal.Signals, Any] = {
        number: handler for number in STOP_SIGNALS if is_main and (handler := signal.getsignal(number)) is not None
    }
    try:
        yield handlers
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _isolated() -> Generator[None]:
    path, folder = list(sys.path), os.open(".", os.O_RDONLY)
    with contextlib.ExitStack() as stack, open(os.devnull, encoding="ascii") as nothing:
        stack.callback(os.close, folder)
        stack.callback(os.fchdir, folder)
        stack.callback(sys.path.__setitem__, slice(None), path)
        stack.enter_context(_restoring_handlers())
        stack.callback(_check_tensorflow)
        stack.callback(_check_surroundings, Surroundings())
        stack.callback(tf.config.run_functions_eagerly, tf.config.functions_run_eagerly())
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(np.errstate())
        streams = ((sys, "path", sys.path), (sys, "stdin", nothing), (sys, "stderr", sys.stderr))
        for owner, name, value in streams:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _check_tensorflow() -> None:
    """Raise ``RuntimeError`` if a page has switched TensorFlow to version 1, for all ops; switch it back."""
    v1 = tf.compat.v1
    if tf.executing_eagerly() and v1.control_flow_v2_enabled() and v1.resource_variables_enabled():
        return
    # Private, because the public function refuses to switch eager execution on where a graph exists.
    context.default_execution_mode = context.EAGER_MODE
    context.context()._thread_local_data.is_eager = True
    v1.enable_v2_behavior()
    expected = "expected a page to leave the behavior of TensorFlow 2 on"
    raise RuntimeError(f"{expected}; leave out disable_v2_behavior and disable_eager_execution")


def _check_surroundings(before: Surroundings) -> None:
    """Raise ``RuntimeError`` if a page has changed what all code shares, such as ``tf.sigmoid``; restore it."""
    if changed := before.restore():
        raise RuntimeError(f"expected a page to leave {', '.join(changed[:3])} as it is; define another name instead")


def _imported(path: Path, text: bytes | None) -> ModuleType:
    if path.parent == OWN and text is None:
        return importlib.import_module(f"{OWN.name}.{path.stem}")
    # The name includes the folder, so that two folders may hold files of the same name (but not ops of the same name).
    name = f"pullback_plugin_{abs(hash(path.parent))}_{path.stem}" + ("" if text is None else "_before")
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        if text is None:
            spec.loader.exec_module(module)
        else:
            exec(compile(text, path, "exec"), vars(module))
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _op_of(module: ModuleType, path: Path) -> Op:
    op = getattr(module, "OP", None)
    if isinstance(op, Op):
        # The first of two ops would be lost.
        if len(lines := _lines_of_op(path)) > 1:
            raise TypeError(f"expected one OP in a file, got one at each of the lines {', '.join(map(str, lines))}")
        return op
    if op is not None:
        raise TypeError(f"expected OP = Op(...), got {type(op).__name__}")
    others = [name for name, value in vars(module).items() if isinstance(value, Op)]
    found = f", but {', '.join(others)}: expected one op in a file, named OP" if others else ": expected OP = Op(...)"
    raise TypeError(f"no OP is defined{found}")


def _lines_of_op(path: Path) -> list[int]:
    """Return the lines that assign ``OP``; none if the file is not Python."""
    try:
        statements = ast.parse(path.read_bytes()).body if path.is_file() else []
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        node.lineno
        for node in statements
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "OP"
    ]


def _location(error: BaseException, path: Path) -> str:
    """Return the line of the page, or of a file beside it, that an error comes from: ``my_ops/cube.py:12``.

    The line of its cause, if it has one, is nearer to the mistake. Without a line, it is that of the op.
    """
    found, line = path, 0
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None:
            break
        if isinstance(cause, SyntaxError) and cause.filename == str(path):
            line = cause.lineno or 0
        if isinstance(cause, OpFault) and cause.where:
            return cause.where.rpartition(" ")[2]
        for frame, number in traceback.walk_tb(cause.__traceback__):
            file = Path(frame.f_code.co_filename)
            if file.parent == path.parent and not (file.parent == OWN and file.name.startswith("_")):
                found, line = file, number
        cause = cause.__cause__
    if not line and not isinstance(error, SyntaxError):
        line = next(iter(_lines_of_op(path)), 0)
    name = _one_line(f"{path.parent.name}/{found.name}")[-MAX_LOCATION:]
    return f"{name}:{line}" if line else name


def _text(error: BaseException) -> str:
    try:
        return without_terminal_codes(str(error)[:MAX_READ])
    except BaseException:  # noqa: BLE001 - the author's __str__ may raise anything
        return ""


def _one_line(text: str) -> str:
    return _valid(" ".join(replace_paths(text, without_folders).split()))


def _valid(text: str) -> str:
    return text.encode(errors="replace").decode()
