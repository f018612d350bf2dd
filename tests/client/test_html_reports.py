"""Reports as HTML: what a page shows, and that nothing in a report can leave its place in it."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pullback import reports
from pullback.html.findings import bars_off, beside, distances
from pullback.html.page import page
from pullback.html.tree import markup
from tests.client.documents import (
    BROKEN,
    FAILING,
    INCONCLUSIVE,
    LATE,
    PASSING,
    SETTING,
    SHOWN_SETTING,
    WORST,
    check,
    report,
)

VOID = {"meta", "br"}


class Page(HTMLParser):
    """The tags, the texts and the attributes of a page; it fails if an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.texts = list[str](), list[str](), list[str]()
        self.attributes = list[tuple[str, str | None]]()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(*documents: dict[str, Any], **options: Any) -> Page:
    found = [reports.report(document) for document in documents]
    return Page(page(found, options.pop("unavailable", {}), **options))


def text(found: Page) -> str:
    return " ".join(" ".join(found.texts).split())


def test_a_report_says_what_the_op_was_checked_with() -> None:
    assert text(read(PASSING | SETTING)).count(f"page 9f86d081884c, {SHOWN_SETTING}") == 1
    assert "page" not in text(read(PASSING))


def test_a_page_has_all_ops_and_the_failures_first() -> None:
    found = read(PASSING, INCONCLUSIVE, BROKEN, LATE, FAILING, unavailable={"gone": "no library"})
    shown = text(found)
    assert "5 ops: 1 fail, 1 error" in shown
    assert "gone is unavailable: no library" in shown
    order = [shown.index(f"{op}: ") for op in ("skewed", "cursed", "kinky", "square")]
    assert order == sorted(order)
    assert 'dy/dx: fail, <angle> & "quotes"' in shown
    assert "expected 1 ± 1e-13" in shown
    assert "2 kink" in shown


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    found = read(PASSING, FAILING)
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "style")]
    assert all(str(value).startswith("#") for name, value in found.attributes if name == "href")
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert "url(" not in page([], {})


def test_text_of_a_report_stays_text() -> None:
    evil = "</p></style><script>alert(1)</script>\x1b[31m\u202e\x00"
    found = read(report(evil, check("fail", sentence=evil, reproduce=evil, shows=evil)), unavailable={evil: evil})
    assert "script" not in found.tags
    assert found.tags.count("style") == 1
    assert "<script>alert(1)</script>" in text(found)
    assert not re.search("[\x00\x1b\u202e]", text(found))


def test_numbers_are_drawn_where_they_are() -> None:
    found = reports.report(report("skewed", check("pass", worst=WORST | {"absolute": 1e-14}), check("fail")))
    plot = distances(found.checks)
    assert plot is not None
    assert {each.get("class") for each in plot.iter("circle")} == {"mark pass"}
    (limit,) = (float(line.get("x1", "")) for line in plot.iter("line") if line.get("class") == "limit")
    (inside,) = (float(circle.get("cx", "")) for circle in plot.iter("circle"))
    (outside,) = (float(path.get("d", "").split()[0][1:]) for path in plot.iter("path"))
    assert inside < limit < outside


@pytest.mark.parametrize(
    ("changes", "off"),
    [
        ({"absolute": 0.0}, 0.0),
        ({"absolute": 2e-13}, 2.0),
        ({"absolute": float("nan")}, float("inf")),
        ({"absolute": 1.0, "error_bar": 0.0}, float("inf")),
    ],
)
def test_the_distance_in_error_bars(changes: Any, off: Any) -> None:
    (found,) = reports.report(report("skewed", check("fail", worst=WORST | changes))).checks
    assert found.worst is not None
    assert bars_off(found.worst) == pytest.approx(off)
    assert distances([found]) is not None


@pytest.mark.parametrize("analytic", ["NaN", "Infinity", 1.7e308, 1.0])
def test_a_number_that_no_line_has_is_not_drawn(analytic: Any) -> None:
    worst = WORST | {"analytic": analytic, "numeric": -1.7e308 if analytic == 1.7e308 else 1.0, "error_bar": 0.0}
    (found,) = reports.report(report("skewed", check("fail", worst=worst))).checks
    assert found.worst is not None
    assert beside(found.worst) is None


def test_a_plot_says_in_words_what_it_shows() -> None:
    (found,) = reports.report(report("skewed", check("fail"))).checks
    assert found.worst is not None
    plot = beside(found.worst)
    assert plot is not None
    assert "got 1.09, expected 1 ± 1e-13" in markup(plot)


def test_the_command_writes_the_page(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert ask("check", "square", "--check", "value", "--html", str(file)).code == 0
    assert "square: " in text(Page(file.read_text()))
