"""Headers of traces: which are valid, by the rules of W3C Trace Context, and what is read from them."""

import pytest

from app.telemetry.stage_times import MAX_STATE, Parent, parent_of, state_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-02", 2),
        (f"00-{TRACE}-{SPAN}-03", 3),
        (f"00-{TRACE}-{SPAN}-ff", 3),  # flags that are not defined are not passed on
        (f"00-{TRACE}-{SPAN}-fc", 0),
        (f"cc-{TRACE}-{SPAN}-01", 1),  # a later version
        (f"01-{TRACE}-{SPAN}-01-what-it-adds", 1),
        (f"fe-{TRACE}-{SPAN}-00-", 0),
    ],
)
def test_valid_parents(header: str, flags: int) -> None:
    found = parent_of(header.encode())
    assert found == Parent(TRACE, SPAN, flags)
    assert found.header() == f"00-{TRACE}-{SPAN}-{flags:02x}".encode()
    assert parent_of(found.header()) == found


@pytest.mark.parametrize(
    "header",
    [
        *("", "-", "00", "0", "\xff" * 55, "00-" * 20),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"0G-{TRACE}-{SPAN}-01",
        f"FE-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0A",
        f"00-{TRACE}-{SPAN}-.0",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-001",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-",
        f"00-{TRACE}-{SPAN}-01-more",  # the first version has four fields
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-011",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{TRACE}-{SPAN[:-1]}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00_{TRACE}_{SPAN}_01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01 ",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01",
        f"٠٠-{TRACE}-{SPAN}-01",
    ],
)
def test_invalid_parents_are_none(header: str) -> None:
    assert parent_of(header.encode("utf-8")) is None


def test_states_are_bounded() -> None:
    assert state_of(b"") == ""
    assert state_of(b"a=1,b=2") == "a=1,b=2"
    assert state_of(b"a=" + b"x" * (MAX_STATE - 2)) == "a=" + "x" * (MAX_STATE - 2)
    assert state_of(b"a=" + b"x" * (MAX_STATE - 1)) == ""
    assert state_of("a=é".encode()) == ""
