"""How the command line reads names, tensors, attributes and tolerances."""

from typing import Any

import numpy as np
import pytest

from pullback import catalogue
from pullback.cli import names, values
from pullback.errors import BadArgument


def contract(inputs: list[str], outputs: list[str], attrs: list[str]) -> catalogue.Contract:
    slot = {"dtypes": ["float32"], "shape": ["..."], "differentiable": True, "doc": ""}
    return catalogue.Contract(
        *("planted", "", "", None, True),
        inputs=tuple(catalogue.InputSlot(name, **slot, domain=(0, 1), kinks=[], poles=[]) for name in inputs),
        outputs=tuple(catalogue.Slot(name, **slot) for name in outputs),
        attrs={"properties": {name: {"type": "string"} for name in attrs}},
    )


def test_an_ambiguous_name_is_refused() -> None:
    op = contract(["x", "dy"], ["y"], ["x"])
    with pytest.raises(BadArgument, match=r"x: ambiguous name; write inputs\.x=\.\.\. or attrs\.x=\.\.\."):
        names.arguments(op, "forward", ["x=1"])
    with pytest.raises(BadArgument, match=r"inputs\.dy=\.\.\. or cotangents\.y"):
        names.arguments(op, "vjp", ["dy=1"])
    result = names.arguments(op, "vjp", ["inputs.x=1", "attrs.x=1", "cotangents.y=2", "inputs.dy=3"])
    assert result == {"inputs": {"x": 1, "dy": 3}, "attrs": {"x": "1"}, "cotangents": {"y": 2}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-0.5e3", -500.0),
        ("1,2,3", [1, 2, 3]),
        ("1,", [1]),
        ("[]", []),
        ("[[1, 2], [3, NaN]]", [[1, 2], [3, np.nan]]),
        ("inf,-Infinity", [np.inf, -np.inf]),
        (" +1 , .5, 5., 1E3", [1, 0.5, 5.0, 1000.0]),
        ("NAN,-nan,+inf,infinity", [np.nan, np.nan, np.inf, np.inf]),
        ("0e-999,-0.0", [0.0, -0.0]),
        ("1.7976931348623157e308,5e-324", [1.7976931348623157e308, 5e-324]),
        ("18446744073709551615,-9223372036854775808", [2**64 - 1, -(2**63)]),
        ("9" * 40, float("9" * 40)),
    ],
)
def test_values(text: str, value: Any) -> None:
    np.testing.assert_array_equal(values.tensor("x", text), value)


TOO_LARGE = ("1e400", "-1e400", "1.8e308", "1e999999999", "9" * 400)
TOO_SMALL = ("1e-400", "-1e-400", "0.1e-999", "." + "0" * 400 + "1")


@pytest.mark.parametrize("text", [*TOO_LARGE, *TOO_SMALL])
def test_a_number_that_no_float_holds_is_refused_everywhere(text: str, tmp_path) -> None:
    (tmp_path / "x.json").write_text(f"[[0], [{text.replace('.0', '0.0', 1) if text[0] == '.' else text}]]")
    expected = "a magnitude below 1.8e308, or Infinity" if text in TOO_LARGE else "0, or a magnitude of at least 5e-324"
    for value in (text, f"1,{text}", f"@{tmp_path / 'x.json'}"):
        with pytest.raises(BadArgument, match=rf"^x: .*expected {expected}, got '"):
            values.tensor("x", value)
    with pytest.raises(BadArgument, match=r"^scale: .*expected"):
        values.attribute("scale", f"@{tmp_path / 'x.json'}", {})
    if text[0] != ".":
        for parse in (values.tensor, lambda name, value: values.attribute(name, value, {"type": "number"})):
            with pytest.raises(BadArgument, match=f"^x: expected {expected}, got '"):
                parse("x", f"[{text}]")


@pytest.mark.parametrize(
    "text",
    [
        *("1_000", "0x10", "0b1", "1,000.5.1", "1;5", "1 5", "１", "١", "½", "1d5", "1f", "1j", "1e", "e5", ".", "+"),
        *("--1", "- 1", "1,,2", ",1", ",", "True", "none", "infinite", "nan0", "1e5_0"),
        *("[1_0]", "[01]", "[.5]", "[nan]", "[1,", "{}"),
    ],
)
def test_what_only_python_reads_as_a_number_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match=r"x: expected @file.npy, .*, got '"):
        values.tensor("x", text)


def test_a_duplicate_key_in_a_file_is_refused(tmp_path) -> None:
    (tmp_path / "x.json").write_text('{"dtype": "float32", "shape": [1], "data": [1], "data": [2]}')
    with pytest.raises(BadArgument, match="duplicate key 'data'"):
        values.tensor("x", f"@{tmp_path / 'x.json'}")


@pytest.mark.parametrize("option", ["--absolute", "--relative"])
@pytest.mark.parametrize("text", ["1e400", "nan", "inf", "-1", "1_0", "x", ""])
def test_a_tolerance_is_a_finite_number(run, option: str, text: str) -> None:
    for command in (["check"], ["verify", "square", "x=1", "gx=2"]):
        result = run(*command, f"{option}={text}", url="http://127.0.0.1:9")
        assert result.code == 2
        assert f"'{option}'" in result.err


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [("1", {"type": "string"}, "1"), ("1", {}, 1), ("a", None, "a"), ("[1]", {}, [1]), ("true", {}, True)],
)
def test_attributes(text: str, schema: Any, value: Any) -> None:
    assert values.attribute("a", text, schema) == value


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"[" * 5000])
def test_broken_files(content: bytes, tmp_path) -> None:
    for suffix in ("npy", "json"):
        path = tmp_path / f"broken.{suffix}"
        path.write_bytes(content)
        with pytest.raises(BadArgument, match=r"x: cannot read .*broken"):
            values.tensor("x", f"@{path}")
