"""C++ ops: the library of the page ``<stem>.py``, built from ``<stem>.cc``.

``make native`` builds it into ``build/`` of a clone, ``pullback native FOLDER`` into ``build/`` of the page's folder.
Where both are there, the newer one is loaded.
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

from pullback.service_process import PACKAGE, SERVICE

OWN, BUILD = SERVICE / "ops", SERVICE / "build"
# A library is for one version of TensorFlow, the first line of this file beside it.
FLAGS = "tensorflow.flags"


class NotBuilt(ImportError):
    """The library of a C++ op is missing, or is for another TensorFlow."""


class Kernels:
    """The ops of one library as functions, named as TensorFlow names them: ``PullbackRelu`` is ``pullback_relu``.

    They are placed on the CPU, for which they are compiled, whatever the device of the surrounding work.
    """

    def __init__(self, library: Any) -> None:
        """Wrap what ``tf.load_op_library`` returned."""
        self._library = library

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the function of one op."""
        kernel = getattr(self._library, name)

        @functools.wraps(kernel)
        def on_cpu(*args: Any, **kwargs: Any) -> Any:
            with tf.device("/device:CPU:0"):
                return kernel(*args, **kwargs)

        return on_cpu


_loaded: dict[str, Kernels] = {}
_bounded: set[str] = set()


def native_libraries() -> list[str]:
    """Return the stems of the loaded libraries, in order."""
    return sorted({Path(page).stem for page in _loaded})


def bounded_kernels() -> frozenset[str]:
    """Return the kernels that the loaded pages declare as bounded, as TensorFlow names them."""
    return frozenset(_bounded)


def load(page: str, *, bounded: Iterable[str] = ()) -> Kernels:
    """Load the library of the page with this ``__file__``, once.

    ``bounded`` names kernels whose time follows from the shapes of their inputs, and which never wait. The service may
    run them at once where tensors are small, and then cannot cancel them.

    Raises ``NotBuilt``, with the command to run, when the library is missing or does not fit.
    """
    if page in _loaded:
        return _loaded[page]
    stem = Path(page).stem
    cure = _cure(Path(page))
    built = "build" if Path(page).parent == OWN else f"{Path(page).absolute().parent.name}/build"
    found = [path for folder in (Path(page).parent / "build", BUILD) if (path := folder / f"{stem}.so").exists()]
    if not found:
        raise NotBuilt(f"{built}/{stem}.so is missing; {cure}")
    if not (fitting := [path for path in found if _version(path) == tf.__version__]):
        raise NotBuilt(f"{built}/{stem}.so is for TensorFlow {_version(found[0])}, not for {tf.__version__}; {cure}")
    path = max(fitting, key=lambda path: path.stat().st_mtime_ns)
    if other := next((Path(other) for other in _loaded if Path(other).stem == stem), None):
        expected = f"{other.parent.name}/{other.name} has loaded it; rename one of the two pages, with its .cc"
        raise NotBuilt(f"{built}/{stem}.so is the library of another page: {expected}")
    try:
        _loaded[page] = Kernels(tf.load_op_library(str(path)))
    except tf.errors.NotFoundError as error:
        raise NotBuilt(f"{built}/{stem}.so does not load: {error.message}; {cure}") from error
    _bounded.update(bounded)
    return _loaded[page]


def left_out() -> list[str]:
    """Return the stems of the pages that ``is_left_out`` is true of, in order."""
    return sorted(page.stem for page in OWN.glob("*.py") if is_left_out(page))


def is_left_out(page: Path) -> bool:
    """Report whether a page is of a C++ op of the service that a wheel has the source of, and nobody has built."""
    of_wheel = page.parent == OWN and PACKAGE.parent != SERVICE
    return of_wheel and page.with_suffix(".cc").exists() and not (BUILD / f"{page.stem}.so").exists()


def _version(library: Path) -> str:
    """Return the version of TensorFlow that a library is built for."""
    flags = library.with_name(FLAGS)
    return flags.read_text().partition("\n")[0] if flags.exists() else tf.__version__


def _cure(page: Path) -> str:
    """Return what to do about a library that is missing or does not fit."""
    if PACKAGE.parent == SERVICE and page.parent == OWN:
        return "run make native and start again"
    built = "--service" if page.parent == OWN else page.absolute().parent.name
    return f"run pullback native {built} and start again"
