"""The output of reports, on prepared events; the parsing of names and values."""

import io
import json
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pullback import catalogue, reports
from pullback.cli import names, values
from pullback.cli.follow import follow
from pullback.cli.junit import junit
from pullback.errors import BadArgument
from tests.client.documents import BROKEN, FAILING, INCONCLUSIVE, LATE, PASSING, WORST, check, places, report, stream
from tests.client.fake_servers import event_stream


def output(*documents: dict[str, Any], terminal: bool = False, **options: Any) -> str:
    file = io.StringIO()
    out = Console(file=file, force_terminal=terminal, width=120, soft_wrap=not terminal, highlight=False)
    events = [reports.event(json.dumps(event)) for event in stream(*documents, unavailable={"gone": "no library"})]
    follow(out, [event for event in events if event is not None], **options)
    return file.getvalue()


def test_each_op_is_a_line() -> None:
    assert output(PASSING) == (
        "square: pass (1 passed, 1 skipped; 0.52 s)\n"
        "not checked, since unavailable: gone: no library\n"
        "1 passed, 0 failed, 0 inconclusive of 1 ops in 31.2 s\n"
    )
    assert output(PASSING, quiet=True) == "not checked, since unavailable: gone: no library\n"


def test_a_failure_shows_both_numbers() -> None:
    out = output(PASSING, FAILING)
    assert "skewed: fail (1 passed, 2 failed; 0.52 s)\n" in out
    assert "FAIL skewed derivative, dy/dx, order 1, float64, graph, cpu\n" in out
    assert '  dy/dx: fail, <angle> & "quotes"\n' in out
    assert "  worst element [3] at x = 0.5:  analytic 1.09  |  numeric 1 ± 1e-13\n" in out
    assert "  difference 0.09, relative 0.09, 4.05e+14 ULP\n" in out
    assert "  worst element:  analytic nan  |  numeric 1 ± 1e-13\n" in out


def test_an_inconclusive_check_has_a_reason() -> None:
    out = output(INCONCLUSIVE)
    assert "INCONCLUSIVE kinky derivative" in out
    assert "no verdict: 2 kink\n" in out


def test_a_fault_of_the_checker_and_lost_time_are_told() -> None:
    out = output(BROKEN, LATE)
    assert "cursed: error (1 passed, 1 broke off; 0.52 s)\n" in out
    assert (
        "ERROR cursed derivative, dy/dx, order 1, float64, graph, cpu\n  the check broke off with ValueError\n" in out
    )
    assert "SKIPPED heavy second, modes\n  not run: out of time; raise it\n" in out
    assert "1 passed, 0 failed, 0 inconclusive, 1 with a fault of the checker, 1 out of time of 2 ops" in out


def test_what_must_be_finite_is_told_without_a_difference() -> None:
    worst = WORST | {"analytic": "NaN", "numeric": "NaN", "error_bar": "Infinity", "absolute": 0.0, "ulps": 0.0}
    out = output(report("root", check("fail", check="finite", input="v", worst=worst)))
    assert "  worst element [3] at v = 0.5:  analytic nan  |  expected a finite number\n" in out
    assert "difference" not in out
    assert "inf" not in out


def test_the_call_that_reproduces_a_number_is_a_line_of_its_own() -> None:
    line = "pullback call skewed vjp x=0.5 --dtype float64 --mode graph"
    out = output(report("skewed", check("fail", reproduce=line, shows="gradients.x[3]")))
    assert f"  analytic: gradients.x[3] of\n    {line}\n" in out
    out = output(report("kinky", check("inconclusive", reproduce=line, shows="gradients.x")))
    assert f"  the number: gradients.x of\n    {line}\n" in out


def test_one_cause_is_one_block_with_its_places() -> None:
    modes, dtypes = ("graph", "eager"), ("float32", "float64")
    product = places(*({"mode": mode, "dtype": dtype} for mode in modes for dtype in dtypes))
    some = places({"mode": "xla", "attrs": {"by": "norm"}}, {"mode": "v1"}, {"input": "z"})
    one, other = (report("wide", check("fail", check="contract", places=p)) for p in (product, some))
    out = output(one, other)
    assert "FAIL wide contract, dy/dx, order 1, cpu\n" in out
    assert "\n  in 4 places: graph, eager x float32, float64\n" in out
    assert "FAIL wide contract, order 1, float64, cpu\n" in out
    assert "\n  in 3 places: dy/dx, xla, by=norm; dy/dx, v1; dy/dz, graph\n" in out


def test_quiet_prints_only_failures() -> None:
    gone = "not checked, since unavailable: gone: no library\n"
    assert output(PASSING, INCONCLUSIVE, quiet=True) == gone
    out = output(PASSING, FAILING, quiet=True)
    assert out.startswith("FAIL skewed")
    assert out.endswith(gone)


def test_a_terminal_gets_a_table_in_colour() -> None:
    out = output(PASSING, FAILING, INCONCLUSIVE, terminal=True)
    assert "\x1b[32mpass" in out
    assert "\x1b[31mfail" in out
    assert "\x1b[33minconclusive" in out
    assert "seconds" in out


def test_control_characters_are_replaced() -> None:
    hostile = report("square", check("fail", sentence="\x1b]0;owned\x07 [red]not a style[/red]"))
    out = output(hostile)
    assert "\x1b" not in out
    assert "[red]not a style[/red]" in out


@pytest.mark.parametrize(
    ("documents", "code"),
    [
        ((PASSING,), 0),
        ((PASSING, INCONCLUSIVE), 2),
        ((INCONCLUSIVE,), 2),
        ((PASSING, FAILING), 1),
        ((PASSING, BROKEN), 2),
        ((PASSING, LATE), 2),
        ((BROKEN, FAILING, LATE), 1),
    ],
)
def test_a_wrong_gradient_has_an_exit_code(run, fake_server, documents: tuple[dict[str, Any], ...], code: int) -> None:
    result = run("check", url=fake_server(event_stream(*stream(*documents))).url)
    assert (result.code, result.err) == (code, "")


def test_check_sends_its_options(run, fake_server) -> None:
    server = fake_server(event_stream(*stream(PASSING)))
    options = ["--dtype", "float32", "--dtype", "float64", "--mode", "eager", "--order", "1", "--check", "adjoint"]
    run("check", "square", *options, "--seed", "3", "--device", "cpu", "--relative", "0.5", url=server.url)
    assert server.requests[0][2] == {
        "ops": ["square"],
        "dtypes": ["float32", "float64"],
        "modes": ["eager"],
        "orders": [1],
        "checks": ["adjoint"],
        "seed": 3,
        "device": "cpu",
        "tolerances": {"absolute": 0.0, "relative": 0.5},
    }


def test_junit_can_be_parsed() -> None:
    odd = report("odd", check("fail", sentence="\x00\x1b < ]]> & \ud800"), check("inconclusive"))
    root = ET.fromstring(junit([reports.report(document) for document in (PASSING, FAILING, odd)], {}))
    assert root.attrib == {"name": "pullback", "tests": "7", "failures": "3", "errors": "0", "skipped": "2"} | {
        "time": root.attrib["time"]
    }
    assert [suite.attrib["name"] for suite in root] == ["square", "skewed", "odd"]
    failure = root[1][1].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == 'dy/dx: fail, <angle> & "quotes"'
    assert "analytic 1.09  |  numeric 1 ± 1e-13" in str(failure.text)
    assert root[2][0][0].attrib["message"] == "�� < ]]> & �"
    assert root[2][1][0].tag == "skipped"
    assert root[2][1][0].attrib["message"].startswith("inconclusive: ")
    assert {case.attrib["classname"] for case in root[0]} == {"pullback.square"}


def test_junit_counts_faults_of_the_checker() -> None:
    root = ET.fromstring(junit([reports.report(BROKEN), reports.report(LATE)], {}))
    assert (root.attrib["errors"], root.attrib["failures"], root.attrib["skipped"]) == ("1", "0", "3")
    error = root[0][1].find("error")
    assert error is not None
    assert error.attrib["message"] == "the check broke off with ValueError"


def test_an_unavailable_op_is_an_error_in_junit() -> None:
    root = ET.fromstring(junit([reports.report(PASSING)], {"gone\x00": "no library; run <make>"}))
    assert {name: root.attrib[name] for name in ("tests", "errors", "failures")} == {
        "tests": "3",
        "errors": "1",
        "failures": "0",
    }
    assert (root[1].attrib["name"], root[1].attrib["tests"], root[1].attrib["errors"]) == ("gone�", "1", "1")
    error = root[1][0].find("error")
    assert error is not None
    assert error.attrib["message"] == "unavailable: no library; run <make>"


@pytest.mark.parametrize(
    ("documents", "code"),
    [((PASSING,), 2), ((FAILING,), 1), ((), 2)],
)
def test_the_exit_code_counts_unavailable_ops(run, fake_server, tmp_path, documents, code) -> None:
    events = stream(*documents, unavailable={"gone": "no library"})
    file = tmp_path / "junit.xml"
    result = run("check", "--quiet", "--junit", str(file), url=fake_server(event_stream(*events)).url)
    assert result.code == code
    assert "not checked, since unavailable: gone: no library" in result.out
    assert [suite.attrib["name"] for suite in ET.parse(file).getroot()][-1] == "gone"


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
