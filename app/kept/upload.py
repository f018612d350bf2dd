"""The upload of a set of parameters: its pieces go to a file as they come, each tensor to its place there."""

import hashlib
import threading
from collections.abc import Sequence

import numpy as np

from app.errors import BodyTooLarge, Faults, Malformed, near, wrong
from app.kept.folder import NewFile
from app.kept.parameters import Form, ParameterSets, Place, file_name
from app.tensors.safetensors import LENGTH, TensorEntry, length_of_header, plain_entries
from ops import Op

# How much of a file is read at a time; a multiple of each itemsize.
PIECE = 1 << 20


class Upload:
    """One upload for an op, by a key. Its methods may block as long as the file system does."""

    def __init__(self, sets: ParameterSets, op: Op, key: str) -> None:
        """Begin; raises ``BodyTooLarge`` for an op with larger parameters than clients may put."""
        self._sets, self._op, self._key, self._form = sets, op, key, Form(op)
        if (size := self._form.size) > sets.largest:
            raise BodyTooLarge(f"the parameters of op {op.name} have {size} bytes; expected at most {sets.largest}")
        self._head, self._entries = bytearray(), list[TensorEntry]()
        self._new: NewFile | None = None
        self._start = self._size = self._got = 0
        # A client may leave while a thread writes.
        self._lock, self._is_dropped = threading.Lock(), False

    def write(self, piece: bytes | memoryview) -> None:
        """Take the next bytes; raises ``Malformed``, ``Unprocessable`` for other tensors, and ``Overloaded``."""
        with self._lock:
            if not self._is_dropped:
                self._take(piece)

    def _take(self, piece: bytes | memoryview) -> None:
        if self._new is None:
            self._head += piece
            start = LENGTH if len(self._head) < LENGTH else LENGTH + length_of_header(bytes(self._head[:LENGTH]))
            if len(self._head) < max(start, LENGTH + 1):
                return
            entries, self._size = plain_entries(bytes(self._head[LENGTH:start]))
            _check(entries, self._op, self._form)
            self._entries, piece = [entry for entry in entries if entry.end > entry.begin], bytes(self._head[start:])
            self._new = self._begin()
        if self._got + len(piece) > self._size:
            raise Malformed(f"expected {self._size} bytes of data after the header (data_offsets), got more")
        try:
            self._place(self._new, memoryview(piece))
        except OSError as error:
            raise self._sets.folder.refused(error) from None

    def finish(self) -> tuple[str, bool]:
        """Keep the set, and return its digest, and whether it is new.

        Raises ``Malformed`` for an upload that is not whole, ``Unprocessable`` for numbers that are not finite, and
        ``Overloaded``.
        """
        if self._new is None or self._got < self._size:
            expected = f"{self._size} bytes of data after" if self._new else "the whole of"
            raise Malformed(f"expected {expected} the header, got {self._got if self._new else len(self._head)} bytes")
        try:
            self._new.file.flush()
            digest = self._digest(self._new)
            name = file_name(self._op, digest)
            if digest == self._op.own_parameters.digest or self._sets.folder.use_file(name):
                return digest, False
            self._sets.folder.keep(self._new, name)
        except OSError as error:
            raise self._sets.folder.refused(error) from None
        return digest, True

    def drop(self) -> None:
        """Remove what was not kept."""
        with self._lock:
            self._is_dropped = True
            if self._new is not None:
                self._new.drop()

    def _begin(self) -> NewFile:
        try:
            # The digest is not known yet; files that are being written have any name.
            new = self._sets.folder.begin(file_name(self._op, "0"), self._key, self._form.size)
            self._start = new.file.tell()
            new.file.write(self._form.header)
        except OSError as error:
            raise self._sets.folder.refused(error) from None
        return new

    def _place(self, new: NewFile, piece: memoryview) -> None:
        """Write the next bytes of the data to the places of their tensors."""
        while piece:
            entry = self._entries[0]
            part = piece[: entry.end - self._got]
            new.file.seek(self._start + self._form.places[entry.name].begin + self._got - entry.begin)
            new.file.write(part)
            self._got, piece = self._got + len(part), piece[len(part) :]
            if self._got == entry.end:
                self._entries.pop(0)

    def _digest(self, new: NewFile) -> str:
        """Return the digest of the set, as ``ParameterSet.digest`` does; raises ``Unprocessable``."""
        found = hashlib.sha256()
        with new.path.open("rb") as file:
            for name, place in self._form.places.items():
                found.update(f"{name} {place.row.name} {list(place.shape)}\n".encode())
                file.seek(self._start + place.begin)
                for at in range(0, place.size, PIECE):
                    data = file.read(min(PIECE, place.size - at))
                    found.update(data)
                    _check_numbers(data, name, place, at)
        return found.hexdigest()


def _check(entries: Sequence[TensorEntry], op: Op, form: Form) -> None:
    """Raise ``Unprocessable`` for tensors that are not the parameters of an op."""
    faults, known = Faults(), {entry.name: entry for entry in entries}
    for name, entry in known.items():
        place = form.places.get(name)
        if place is None:
            message = f"no parameter of op {op.name}"
            faults.add(("parameters", name), message, expected=near(name, form.places), got=name)
        elif (entry.row, entry.shape) != (place.row, place.shape):
            expected, got = (f"{each.row.name} of shape {list(each.shape)}" for each in (place, entry))
            faults.add(("parameters", name), "another dtype or shape", expected=expected, got=got)
    for name in form.places:
        if name not in known:
            expected = f"all of {', '.join(form.places)}"
            faults.add(("parameters", name), "missing parameter", expected=expected, got="none")
    faults.check()


def _check_numbers(data: bytes, name: str, place: Place, at: int) -> None:
    """Raise ``Unprocessable`` for numbers of a parameter that are not finite, and bools that are not 0 or 1."""
    if place.row.is_bool:
        bad, expected = np.frombuffer(data, np.uint8) > 1, "0 or 1 for each bool"
    elif place.row.is_float:
        bad, expected = ~np.isfinite(np.frombuffer(data, place.row.wire)), "finite numbers"
    else:
        return
    if bad.any():
        index = at // place.row.itemsize + int(bad.argmax())
        where = list(map(int, np.unravel_index(index, place.shape)))
        got = str(np.frombuffer(data, np.uint8 if place.row.is_bool else place.row.wire)[bad.argmax()])
        raise wrong(("parameters", name, *where), "not a number of a parameter", expected=expected, got=got)
