"""The output of reports, on prepared events."""

import io
import json
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pullback import reports
from pullback.cli.follow import follow
from tests.client.documents import (
    BROKEN,
    FAILING,
    INCONCLUSIVE,
    JUDGED,
    LATE,
    PASSING,
    SETTING,
    SHOWN_SETTING,
    WORST,
    check,
    places,
    report,
    stream,
)
from tests.client.fake_servers import event_stream


def output(*documents: dict[str, Any], terminal: bool = False, **options: Any) -> str:
    file = io.StringIO()
    out = Console(file=file, force_terminal=terminal, width=120, soft_wrap=not terminal, highlight=False)
    events = [reports.event(json.dumps(event)) for event in stream(*documents, unavailable={"gone": "no library"})]
    follow(out, [event for event in events if event is not None], **options)
    return file.getvalue()


def test_each_op_is_a_line() -> None:
    assert output(PASSING) == (
        "not checked, since unavailable: gone: no library\n"
        f"square: pass (1 passed, 1 skipped{JUDGED}\n"
        "1 passed, 0 failed, 0 inconclusive, 1 unavailable of 2 ops in 31.2 s\n"
    )
    assert output(PASSING, quiet=True) == "not checked, since unavailable: gone: no library\n"


def test_what_the_ops_were_checked_with_is_told_once() -> None:
    one, two = PASSING | SETTING, report("other", check()) | SETTING
    lines = output(one, two).splitlines()
    assert [line.endswith("s; page 9f86d081884c)") for line in lines[1:3]] == [True, True]
    assert lines[-1] == SHOWN_SETTING
    assert output(one, two).count("Pullback 0.4.0") == 1
    changed = two | {"origin": SETTING["origin"] | {"version": "0.5.0"}}
    assert output(one, changed).splitlines()[-2:] == [
        f"{SHOWN_SETTING}: square",
        f"{SHOWN_SETTING.replace('0.4.0', '0.5.0')}: other",
    ]
    assert "seed" not in output(one, quiet=True)


def test_a_failure_shows_both_numbers() -> None:
    out = output(PASSING, FAILING)
    assert f"skewed: fail (1 passed, 2 failed{JUDGED}\n" in out
    assert "FAIL skewed derivative, dy/dx, order 1, float64, graph, cpu\n" in out
    assert '  dy/dx: fail, <angle> & "quotes"\n' in out
    assert "  worst element [3] at x = 0.5:  analytic 1.09  |  numeric 1 ± 1e-13\n" in out
    assert "  difference 0.09, relative 0.09, 4.05e+14 ULP\n" in out
    assert "  worst element:  analytic nan  |  numeric 1 ± 1e-13\n" in out


def test_findings_that_may_follow_from_a_wrong_gradient_are_counted_below_it() -> None:
    follows = "2 other findings may follow from this one: correct it first"
    others = [check("fail", check="second"), check("fail", check="adjoint")]
    for checks in ([check("fail"), check(), *others], [others[0], check("fail"), check("fail"), others[1]]):
        lines = output(report("skewed", *checks)).splitlines()
        assert [line.strip() for line in lines].count(follows) == 1
    assert "may follow" not in output(report("skewed", *others))
    assert "may follow" not in output(report("skewed", check("fail"), check("fail"), check("error", check="second")))


def test_what_is_inconclusive_in_an_op_that_passes_is_a_note() -> None:
    judged = report("square", check("inconclusive"), check())
    assert "INCONCLUSIVE square derivative" in output(judged)
    out = output(judged | {"verdict": "pass"})
    assert "NOTE square derivative" in out
    assert "INCONCLUSIVE" not in out


def test_an_inconclusive_check_has_a_reason() -> None:
    out = output(INCONCLUSIVE)
    assert "INCONCLUSIVE kinky derivative" in out
    assert "no verdict: 2 kink\n" in out


def test_a_fault_of_the_checker_and_lost_time_are_told() -> None:
    out = output(BROKEN, LATE)
    assert f"cursed: error (1 passed, 1 broke off{JUDGED}\n" in out
    assert (
        "ERROR cursed derivative, dy/dx, order 1, float64, graph, cpu\n  the check broke off with ValueError\n" in out
    )
    assert "SKIPPED heavy second, modes\n  not run: out of time; raise it\n" in out
    numbers = "1 passed, 0 failed, 0 inconclusive, 1 with a fault of the checker, 1 unavailable of 3 ops in "
    assert re.search(rf"^{numbers}[\d.]+ s; 1 of them out of time$", out, re.MULTILINE)


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
    assert out.startswith(f"{gone}FAIL skewed")


def test_a_note_is_told_although_the_op_passes() -> None:
    noted = report("smooth", check(check="declarations", sentence="x declares a kink at 0", note=True))
    assert "NOTE smooth declarations, dy/dx, order 1, float64, graph, cpu\n  x declares a kink at 0\n" in output(noted)
    assert "NOTE" not in output(noted, quiet=True)
    strict = report("smooth", check("fail", check="declarations", note=True, worst=None))
    assert "FAIL smooth declarations" in output(strict, quiet=True)


def test_a_terminal_gets_coloured_lines() -> None:
    out = output(PASSING, FAILING, INCONCLUSIVE, terminal=True)
    assert "\x1b[32msquare: pass" in out
    assert "\x1b[31mskewed: fail" in out
    assert "\x1b[33mkinky: inconclusive" in out


def test_a_step_that_runs_long_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, file = 0.0, io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def events() -> Iterator[reports.Progress]:
        nonlocal now
        times = ((0, "contract"), (1, "contract"), (10, "contract"), (20, "contract"), (21, "value"), (22, "value"))
        for time_s, step in times:
            now = time_s
            yield reports.Progress("slow", step, 0, 9)

    follow(Console(file=file), events())
    assert file.getvalue() == "slow: check contract is running\n"


def test_reports_have_the_order_in_which_the_stream_names_the_ops() -> None:
    events = [reports.event(json.dumps(event)) for event in stream(PASSING, FAILING)]
    start, *found = [event for event in events if event is not None]
    assert isinstance(start, reports.Start)
    *others, summary = found
    outcome = follow(Console(file=io.StringIO()), [start, *reversed(others), summary])
    assert [report.op for report in outcome.reports] == start.ops == ["square", "skewed"]


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
def test_a_wrong_gradient_has_an_exit_code(
    run: Any, fake_server: Any, documents: tuple[dict[str, Any], ...], code: int
) -> None:
    result = run("check", url=fake_server(event_stream(*stream(*documents))).url)
    assert (result.code, result.err) == (code, "")


def test_check_sends_its_options(run: Any, fake_server: Any) -> None:
    server = fake_server(event_stream(*stream(PASSING)))
    options = ["--dtype", "float32", "--dtype", "float64", "--mode", "eager", "--order", "1", "--check", "adjoint"]
    run(
        "check",
        "square",
        *options,
        "--seed",
        "3",
        "--device",
        "cpu",
        "--relative",
        "0.5",
        "--strict-claims",
        url=server.url,
    )
    assert server.requests[0][2] == {
        "ops": ["square"],
        "dtypes": ["float32", "float64"],
        "modes": ["eager"],
        "orders": [1],
        "checks": ["adjoint"],
        "seed": 3,
        "device": "cpu",
        "tolerances": {"absolute": 0.0, "relative": 0.5},
        "strict_claims": True,
    }


@pytest.mark.parametrize(
    ("documents", "code"),
    [((PASSING,), 2), ((FAILING,), 1), ((), 2)],
)
def test_the_exit_code_counts_unavailable_ops(
    run: Any, fake_server: Any, tmp_path: Path, documents: Any, code: Any
) -> None:
    events = stream(*documents, unavailable={"gone": "no library"})
    file = tmp_path / "junit.xml"
    result = run("check", "--quiet", "--junit", str(file), url=fake_server(event_stream(*events)).url)
    assert result.code == code
    assert "not checked, since unavailable: gone: no library" in result.out
    assert [suite.attrib["name"] for suite in ET.parse(file).getroot()][-1] == "gone"
