"""What the service reads from a process of checks."""

import math
import os
import pickle

import pytest

from app.errors import Overloaded, wrong
from app.processes.messages import Began, Done, Found, Left, Planned, Ready, read
from pullback.gradcheck.verdict import Finding, Subject, worst_of

WORST = worst_of((0, 1), 1.0, 2.0, 3.0, error_bar=math.inf, dtype="float32")
MESSAGES = [
    Ready(),
    Planned(["contract {}"]),
    Began(1),
    Found(1, Finding(Subject("value"), "fail", "bad", worst=WORST, attrs={"k": (1, math.inf)}).entry({}, "cpu", 0.5)),
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


HIDDEN = Found(0, Finding(Subject("value"), "pass", "").entry({"k": Function()}))


@pytest.mark.parametrize(
    "other",
    [Function(), HIDDEN, os.getpid, 3, Exception("x")],
)
def test_nothing_else_is_read(other):
    with pytest.raises(pickle.UnpicklingError):
        read(pickle.dumps(other))
