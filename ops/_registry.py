"""Discovery of the ops: every module of this package without a leading underscore, then the plug-in folders."""

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType

from ops._native import NotBuilt
from ops._op import Op
from ops._paths import replace_paths, without_folders

log = logging.getLogger("pullback")


class RegistryError(Exception):
    """The ops cannot be registered: two files define one name, or a plug-in folder is missing."""


@dataclass(frozen=True)
class Unavailable:
    """An op (or a file that should define one) that cannot be served, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Registry:
    """The ops by name, and those that could not be loaded."""

    ops: Mapping[str, Op]
    unavailable: tuple[Unavailable, ...] = ()


def discover(plug_in_folders: Sequence[Path] = ()) -> Registry:
    """Import every op module and return the registry, with the ops sorted by name.

    A file that fails to import or defines no ``OP`` is listed as unavailable with its error; the others are served.

    Raises ``RegistryError`` when two files define one op name, or when a plug-in folder does not exist.
    """
    own = Path(__file__).parent
    ops: dict[str, tuple[Op, Path]] = {}
    unavailable: list[Unavailable] = []
    for folder in (own, *plug_in_folders):
        if not folder.is_dir():
            raise RegistryError(f"plug-in ops (PULLBACK_OPS_PATH): expected a folder, got {folder}")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise RegistryError(f"plug-in ops (PULLBACK_OPS_PATH): expected a folder that may be read, got {folder}")
        for path in sorted(folder.glob("[!_.]*.py")):
            try:
                op = _op_of(_import_page(path, own))
            except Exception as error:
                # ``NotBuilt`` needs no stack trace; for other errors the author of the op does.
                log.warning("op %s is unavailable: %s", path, error, exc_info=not isinstance(error, NotBuilt))
                unavailable.append(Unavailable(path.stem, _reason(error)))
                continue
            if op.name in ops:
                raise RegistryError(f"two files define the op {op.name!r}: {ops[op.name][1]} and {path}")
            ops[op.name] = (op, path)
    return Registry(MappingProxyType({name: ops[name][0] for name in sorted(ops)}), tuple(unavailable))


def _import_page(path: Path, own: Path) -> ModuleType:
    if path.parent == own:
        return importlib.import_module(f"{__package__}.{path.stem}")
    # The name includes the folder, so that two folders may hold files of the same name (but not ops of the same name).
    name = f"pullback_plugin_{abs(hash(path.parent))}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reason(error: Exception) -> str:
    """Return an import error as one line for the catalogue, without the folders of this machine."""
    return " ".join(replace_paths(f"{type(error).__name__}: {error}", without_folders).split())[:300]


def _op_of(module: ModuleType) -> Op:
    op = getattr(module, "OP", None)
    if not isinstance(op, Op):
        raise TypeError(f"expected OP = Op(...), got {type(op).__name__}" if op is not None else "no OP is defined")
    return op
