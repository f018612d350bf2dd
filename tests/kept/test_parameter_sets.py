"""The sets of parameters that clients have put: bounded by key and in memory, whole or not there, trusting no file."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from app.errors import BodyTooLarge, NotFound, Overloaded, Unprocessable
from app.kept.parameters import Form, ParameterSets
from app.kept.upload import Upload
from tests.http.plugins.layered import OP
from tests.http.test_put_parameters import body, values
from tests.kept.test_posted_graphs import full_disk

BYTES = sum(x.nbytes for x in values(0).values())
FILE = Form(OP).size + 16


def put(sets: ParameterSets, seed: int, key: str = "") -> str:
    upload = Upload(sets, OP, key)
    try:
        for start in range(0, len(content := body(values(seed))), 10):
            upload.write(content[start : start + 10])
        return upload.finish()[0]
    finally:
        upload.drop()


def is_kept(path: Path, digest: str) -> bool:
    """Return whether another process finds a set."""
    try:
        ParameterSets(path, total=1 << 20, of_key=1 << 20, memory=1 << 20).find(OP, digest)
    except NotFound:
        return False
    return True


def test_a_key_makes_room_among_its_own_sets(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=1 << 20, of_key=2 * FILE, memory=1 << 20)
    bob = put(sets, 0, "bob")
    alice = [put(sets, seed, "alice") for seed in range(1, 4)]
    assert [is_kept(tmp_path, digest) for digest in (bob, *alice)] == [True, False, True, True]


def test_the_key_with_the_most_makes_room_for_others(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=3 * FILE, of_key=1 << 20, memory=1 << 20)
    alice = [put(sets, seed, "alice") for seed in range(3)]
    bob = put(sets, 3, "bob")
    assert [is_kept(tmp_path, digest) for digest in (*alice, bob)] == [False, True, True, True]


def test_memory_has_the_sets_that_were_used_last(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=1 << 20, of_key=1 << 20, memory=4 * BYTES - 1)
    digests = [put(sets, seed) for seed in range(4)]
    found = [sets.find(OP, digest) for digest in digests]
    assert [sets.has(OP, one) for one in found] == [False, True, True, True]
    assert sets.size == 3 * BYTES
    assert sets.known(OP, digests[0]) is None
    assert sets.find(OP, digests[0]) is not found[0]
    for name, x in sets.find(OP, digests[2]).arrays.items():
        np.testing.assert_array_equal(x, values(2)[name])
        assert x.ctypes.data % 64 == 0
        assert not x.flags.writeable


def test_a_file_with_other_numbers_does_not_count(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=1 << 20, of_key=1 << 20, memory=1 << 20)
    digest = put(sets, 0)
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    for wrong in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1], b"", b'""\n'):
        path.write_bytes(wrong)
        assert not is_kept(tmp_path, digest), wrong
    path.write_bytes(whole)
    assert is_kept(tmp_path, digest)


def test_a_full_disk_and_a_set_that_is_too_large_leave_no_file(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=1 << 20, of_key=1 << 20, memory=1 << 20)
    with full_disk(), pytest.raises(Overloaded, match="parameters cannot be kept"):
        put(sets, 0)
    assert not [*tmp_path.iterdir()]
    small = ParameterSets(tmp_path, total=1 << 20, of_key=BYTES, memory=1 << 20)
    with pytest.raises(BodyTooLarge, match=f"expected at most {BYTES}"):
        put(small, 0)
    assert not [*tmp_path.iterdir()]


def unfinished(sets: ParameterSets, seed: int, key: str) -> Upload:
    """Return an upload that has sent all but its last byte."""
    upload = Upload(sets, OP, key)
    upload.write(body(values(seed))[:-1])
    return upload


def test_unfinished_uploads_remove_nothing_and_hold_no_other_key(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=6 * FILE, of_key=1 << 20, memory=1 << 20)
    bob, held = [put(sets, seed, "bob") for seed in range(5)], list[Upload]()
    for seed in range(5, 20):
        with suppress(Overloaded):
            held.append(unfinished(sets, seed, "alice"))
    assert len(held) == 3
    assert all(is_kept(tmp_path, digest) for digest in bob)
    bob.append(put(sets, 30, "bob"))
    carol = put(sets, 31, "carol")
    for upload in held:
        upload.drop()
    assert [is_kept(tmp_path, digest) for digest in (*bob, carol)] == [False, True, True, True, True, True, True]


def test_an_invalid_upload_removes_nothing(tmp_path: Path) -> None:
    sets = ParameterSets(tmp_path, total=2 * FILE, of_key=2 * FILE, memory=1 << 20)
    kept = [put(sets, 0, "bob"), put(sets, 1, "alice")]
    upload = Upload(sets, OP, "alice")
    upload.write(body({name: x * np.inf if x.dtype.kind == "f" else x for name, x in values(2).items()}))
    with pytest.raises(Unprocessable):
        upload.finish()
    upload.drop()
    assert all(is_kept(tmp_path, digest) for digest in kept)


def test_on_a_full_disk_unfinished_uploads_remove_one_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = ParameterSets(tmp_path, total=1 << 20, of_key=1 << 20, memory=1 << 20)
    bob = [put(sets, seed, "bob") for seed in range(3)]
    most = 3 * FILE

    def allocate(descriptor: int, offset: int, size: int) -> None:
        used = sum(path.stat().st_size for path in tmp_path.iterdir())
        if used + size > most:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.truncate(descriptor, offset + size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    held = [unfinished(sets, 9, "eve")]
    for seed in range(10, 14):
        with pytest.raises(Overloaded):
            unfinished(sets, seed, "eve")
    assert [is_kept(tmp_path, digest) for digest in bob] == [False, True, True]
    for upload in held:
        upload.drop()
    assert is_kept(tmp_path, put(sets, 20, "bob"))
