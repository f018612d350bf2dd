"""The messages of exceptions for clients."""

import pytest

from app.runtime.messages import message_of, without_paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('File "/home/me/x.py", line 3, in f', "…, in f"),
        ('File "<string>", line 3', "…"),
        ("No such file: '/home/me/x.npy'", "No such file: '…'"),
        ("see https://example.org/a/b_c, in m/s", "see https://example.org/a/b_c, in m/s"),
    ],
)
def test_a_message_has_no_paths_but_keeps_urls(text: str, expected: str):
    assert without_paths(text) == expected
    assert message_of(ValueError(f"lost: {text}")) == f"lost: {expected}"
