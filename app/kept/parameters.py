"""Sets of parameter values that clients have put, each in a safetensors file.

The name of a file has the op and the digest of the set. The parameters of the op determine the header of the file, so a
file from before the op got other parameters is not read.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import numpy as np

from app.errors import NotFound
from app.kept.folder import Bounds, SharedFolder
from app.kept.memory import Recent
from app.tensors.casting import aligned
from app.tensors.dtypes import DTYPES, DType
from app.tensors.safetensors import MAX_HEADER, lay_out
from ops import Array, Op, ParameterSet

log = logging.getLogger("pullback")

# The most sets of all keys, and how many digests an error names.
MOST, NAMED = 4096, 8
DIGEST = re.compile(r"[0-9a-f]{64}")
ENDING = ".safetensors"


@dataclass(frozen=True)
class Place:
    """Where a parameter is in the file of a set, behind the first line: its dtype, shape, and first byte."""

    row: DType
    shape: tuple[int, ...]
    begin: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.row.itemsize


class Form:
    """The file of a set of an op, without its numbers."""

    def __init__(self, op: Op) -> None:
        """Derive it from the parameters."""
        stand_ins = {
            each.name: np.broadcast_to(np.zeros((), each.value.dtype), each.value.shape) for each in op.parameters
        }
        layout = lay_out(stand_ins, {})
        self.header, at, places = bytes(layout.constants[0]), len(layout.constants[0]), dict[str, Place]()
        # As in ``lay_out``: the wider dtypes come first.
        for name, x in sorted(stand_ins.items(), key=lambda item: -item[1].itemsize):
            places[name] = place = Place(DTYPES[x.dtype.name], x.shape, at)
            at += place.size
        self.size = at
        self.places: Mapping[str, Place] = {each.name: places[each.name] for each in op.parameters}


class ParameterSets:
    """The sets that clients have put, in a folder, and those that this process has read. Any thread may use it.

    ``is_allowed``: clients may put sets.
    """

    def __init__(self, path: Path, *, total: int = 0, of_key: int = 0, memory: int = 0) -> None:
        """Take the limits in bytes: of all sets, of those of a key, and of those that this process has read."""
        self.is_allowed, self.largest = total > 0, min(total, of_key, memory)
        bounds = Bounds(MOST, self.largest + MAX_HEADER, of_key, total)
        self.folder = SharedFolder(path, "parameters", rf"[a-z0-9_]+\.{DIGEST.pattern}{re.escape(ENDING)}", bounds)
        self._read = Recent[ParameterSet](self.folder.use_file, memory)

    @property
    def size(self) -> int:
        """The bytes of the sets that this process has read."""
        return self._read.size

    def known(self, op: Op, digest: str) -> ParameterSet | None:
        """Return the page's own set, or one that this process has read, and note its use; it never blocks."""
        own = op.own_parameters
        if own.arrays and digest == own.digest:
            return own
        found = self._read.known(file_name(op, digest))
        return found if found is not None and _fits(found, own) else None

    def is_kept(self, op: Op, values: ParameterSet) -> bool:
        """Note that a set is used; return whether this process has it. It never blocks."""
        return values is op.own_parameters or self._read.known(file_name(op, values.digest)) is values

    def has(self, op: Op, values: ParameterSet) -> bool:
        """Return whether this process has a set, without using it."""
        return values is op.own_parameters or self._read.has(file_name(op, values.digest), values)

    def find(self, op: Op, digest: str, key: str = "") -> ParameterSet:
        """Return a set, which may have to be read; raises ``NotFound``, which names the digests of the key."""
        if (known := self.known(op, digest)) is not None:
            return known
        found = self._from_file(op, digest) if self.is_allowed and DIGEST.fullmatch(digest) else None
        if found is None:
            digests = ", ".join([op.own_parameters.digest, *self._digests(op, key)])
            raise NotFound(f"op {op.owner} has no parameters with the digest {digest!r}; known are {digests}")
        return self._read.add(file_name(op, digest), found, sum(x.nbytes for x in found.arrays.values()))

    def _digests(self, op: Op, key: str) -> list[str]:
        """Return the digests of the last sets that a key has put or used."""
        names = islice(self.folder.names(key, f"{op.owner}."), NAMED) if self.is_allowed else ()
        return [name.removeprefix(f"{op.owner}.").removesuffix(ENDING) for name in names]

    def _from_file(self, op: Op, digest: str) -> ParameterSet | None:
        name = file_name(op, digest)
        try:
            file, _ = self.folder.open_file(name)
            with file:
                found = _values(file, Form(op))
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the parameters %s cannot be read: %s", name, error)
            return None
        if found is None or found.digest != digest:
            log.warning("the file of the parameters %s has others", name)
            return None
        return found


def file_name(op: Op, digest: str) -> str:
    """Return the name of the file of a set."""
    return f"{op.owner}.{digest}{ENDING}"


def _fits(values: ParameterSet, own: ParameterSet) -> bool:
    """Return whether a set has the parameters of an op, which may have been reloaded."""
    return [*values.arrays] == [*own.arrays] and all(
        x.dtype == own.arrays[name].dtype and x.shape == own.arrays[name].shape for name, x in values.arrays.items()
    )


def _values(file: BufferedReader, form: Form) -> ParameterSet | None:
    """Return the set in a file, ``None`` for one of other parameters."""
    if file.read(len(form.header)) != form.header:
        return None
    arrays = dict[str, Array]()
    for name, place in sorted(form.places.items(), key=lambda item: item[1].begin):
        raw = aligned(place.size)
        if file.readinto(raw.data) != place.size:
            return None
        arrays[name] = np.ndarray(place.shape, place.row.wire, raw).astype(place.row.numpy, copy=False)
        arrays[name].flags.writeable = False
    return ParameterSet(MappingProxyType({name: arrays[name] for name in form.places}))
