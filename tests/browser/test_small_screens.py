"""What a phone shows, and what fingers do; and graphs that are wider than the page."""

import math
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import wait_for_plot
from playwright.sync_api import Page, expect


def range_of(page: Page) -> tuple[float, float]:
    fields = parse_qs(urlsplit(page.url).query)
    return float(fields["from"][0]), float(fields["to"][0])


def test_a_graph_of_eight_nodes_fits_the_width_and_shows_its_constants(visit) -> None:
    page = visit("/explore/chain", width=1440)
    graph = page.locator(".graph")
    assert graph.evaluate("e => e.scrollWidth <= e.clientWidth")
    boxes = [box for box in (each.bounding_box() for each in graph.locator("rect").all()) if box]
    assert len(boxes) == 10
    assert all(box["width"] > 20 for box in boxes)
    for text in ("b = 0.25", "1.5", "scale = 0.5"):
        expect(graph.get_by_text(text, exact=True)).to_be_visible()
    page.get_by_text("The nodes as a list").click()
    expect(page.locator(".nodes li").nth(1)).to_have_text("scaled = multiply(a=x, b=0.25)")
    assert "Source:" not in page.locator("#text").inner_text()
    expect(page.locator("#text pre").first).to_contain_text(
        "scaled = multiply(a=x, b=0.25)\nshifted = add(1.5, scaled)\n"
    )


def test_a_graph_on_a_phone_scrolls_and_stays_readable(visit) -> None:
    page = visit("/explore/chain", width=390)
    graph = page.locator(".graph")
    assert graph.evaluate("e => e.scrollWidth > e.clientWidth")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    height = graph.locator(".name").first.bounding_box()
    assert height is not None
    assert height["height"] > 8


@pytest.mark.parametrize("path", ["/explore", "/explore/cast_float64", "/explore/softmax_cross_entropy.vjp.vjp"])
def test_a_page_is_no_wider_than_a_phone(visit, path: str) -> None:
    page = visit(path, width=390)
    expect(page.locator(".chip").first).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("op", ["log1pexp2", "wrong_cube"])
def test_a_phone_shows_the_difference_and_the_verdict_at_the_cursor(visit, op: str) -> None:
    page = visit(f"/explore/{op}", width=390)
    wait_for_plot(page)
    cells = page.locator(".readout td").all()
    assert len(cells) >= 8
    for cell in cells:
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.locator(".readout-place").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_one_finger_moves_the_range_and_two_zoom(visit) -> None:
    page = visit("/explore/square?from=-4&to=4", width=390, has_touch=True)
    wait_for_plot(page)
    area = page.locator(".u-over").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    fingers = page.context.new_cdp_session(page)

    def move(*paths: tuple[float, float]) -> None:
        """Move fingers from one share of the width to another."""
        for step in range(6):
            shares = [start + (end - start) * step / 5 for start, end in paths]
            points = [{"x": box["x"] + share * box["width"], "y": y, "id": i} for i, share in enumerate(shares)]
            kind = "touchMove" if step else "touchStart"
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    before = page.url
    move((0.25, 0.75))
    page.wait_for_url(lambda url: url != before)
    low, high = range_of(page)
    assert high - low == pytest.approx(8, rel=1e-3)
    assert low == pytest.approx(-8, abs=0.3)
    wait_for_plot(page)
    before = page.url
    move((0.4, 0.2), (0.6, 0.8))
    page.wait_for_url(lambda url: url != before)
    closer = range_of(page)
    assert math.isclose((closer[1] - closer[0]) / (high - low), 1 / 3, rel_tol=0.05)
    assert sum(closer) == pytest.approx(low + high, abs=0.3)
    wait_for_plot(page)
    page.go_back()
    page.go_back()
    assert range_of(page) == (-4, 4)


def test_a_report_fits_a_phone(browser, output) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 900})
    page = context.new_page()
    page.goto((output / "report.html").resolve().as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(e => { e.open = true; })")
    wide = "() => [...document.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth && e.clientWidth)"
    assert page.evaluate(f"{wide}.map(e => e.outerHTML.slice(0, 200))") == []
    row = page.locator(".rows tr").nth(2)
    assert "error bars" in row.locator("td").nth(4).evaluate("e => getComputedStyle(e, '::before').content")
    context.close()
