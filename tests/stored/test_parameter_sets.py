"""The sets of parameters that clients have put: bounded by key and in memory, whole or not there, trusting no file."""

from pathlib import Path

import numpy as np
import pytest

from app.errors import BodyTooLarge, NotFound, Overloaded
from app.stored.parameters import Form, ParameterSets
from app.stored.upload import Upload
from tests.graphs.test_store import full_disk
from tests.http.plugins.layered import OP
from tests.http.test_put_parameters import body, values

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
