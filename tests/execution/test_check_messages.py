"""What the service reads from a process of checks."""

import os
import pickle

import pytest

from app.errors import Overloaded, wrong
from app.execution.check_messages import Began, Done, Found, Left, Planned, Ready, read

MESSAGES = [
    Ready(),
    Planned(["contract {}"]),
    Began(1),
    Found(1, {"check": "value", "worst": None, "places": [{"seconds": 0.5}], "k": (1, float("inf"))}),
    Left(1, True, "raise it", 0.25),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_are_read(message):
    assert read(pickle.dumps(message)) == message


@pytest.mark.parametrize("error", [Overloaded("full", retry_after_s=7), wrong(("x",), "bad", expected="a", got="b")])
def test_errors_are_read(error):
    found = read(pickle.dumps(Done(error)))
    assert isinstance(found, Done)
    assert type(found.error) is type(error)
    assert vars(found.error) == vars(error)


class Function:
    def __reduce__(self):
        return os.getpid, ()


@pytest.mark.parametrize("other", [Function(), Found(0, {"k": Function()}), os.getpid, 3, Exception("x")])
def test_nothing_else_is_read(other):
    with pytest.raises(pickle.UnpicklingError):
        read(pickle.dumps(other))
