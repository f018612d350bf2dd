"""What follows a click: a check that begins, findings of all kinds, and the way back."""

import json
import re

import pytest
from conftest import cursor, wait_for_plot
from playwright.sync_api import Page, Route, expect

PLUS = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }))"


def drawn(page: Page) -> int:
    wait_for_plot(page)
    return int(page.locator(".panels").get_attribute("data-drawn") or 0)


def test_a_check_that_has_begun_says_so_before_the_service_answers(visit) -> None:
    page = visit("/explore/square")
    page.route("**/v1/checks", lambda route: None)
    page.get_by_role("button", name="Check this op").click()
    assert page.locator(".verdict-line").inner_text() == "The check has begun."


def test_a_finding_without_a_point_has_no_place(visit) -> None:
    page = visit("/explore/square")
    worst = {"index": None, "x": None, "analytic": 2.0, "numeric": 1.0, "error_bar": 0.5}
    finding = {"check": "derivative", "verdict": "fail", "sentence": "differs", "order": 1, "input": "x", "attrs": {}}
    finding |= {"mode": "graph", "dtype": "float64", "worst": worst, "reproduce": None, "point": None, "places": []}
    report = {"op": "square", "verdict": "fail", "sentence": "1 check fails", "checks": [finding]}
    body = json.dumps({"event": "report", "report": report}) + "\n"
    page.route("**/v1/checks", lambda route: route.fulfill(body=body, content_type="application/x-ndjson"))
    page.get_by_role("button", name="Check this op").click()
    expect(page.locator(".finding .numbers")).to_have_text("the op's 2, expected 1 ± 0.5")


@pytest.mark.parametrize("act", ["button", "field", "keys"])
def test_the_back_button_undoes_a_zoom(visit, act: str) -> None:
    page = visit("/explore/square?from=-4&to=6")
    before, start = drawn(page), page.url
    if act == "button":
        page.get_by_role("button", name="Zoom in").click()
    elif act == "field":
        page.get_by_label("x from").fill("1.123456789")
        page.get_by_label("x from").press("Enter")
    else:
        page.locator(".panels").focus()
        # Several moves in a row are one step. A busy browser would hold up keys that are pressed one by one.
        page.evaluate(f"() => [1, 2, 3].forEach(() => {{ {PLUS} }})")
    page.wait_for_function(f"() => Number(document.querySelector('.panels').dataset.drawn) > {before}")
    zoomed = page.url
    assert zoomed != start
    if act == "field":
        assert "from=1.123456789" in zoomed
    page.go_back()
    page.wait_for_url(start)
    for name, value in (("x from", "-4"), ("to", "6")):
        expect(page.get_by_label(name, exact=True)).to_have_value(value)
    wait_for_plot(page)
    page.go_forward()
    page.wait_for_url(zoomed)
    wait_for_plot(page)


def test_a_zoom_keeps_the_cursor(visit) -> None:
    page = visit("/explore/square?from=-4&to=4")
    before = drawn(page)
    page.locator(".panels").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    at = cursor(page)
    page.keyboard.press("+")
    page.wait_for_function(f"() => Number(document.querySelector('.panels').dataset.drawn) > {before}")
    assert cursor(page) == pytest.approx(at, abs=0.02)


def test_a_link_within_the_page_keeps_large_fields(visit) -> None:
    page = visit("/explore/square?t=forward")
    page.wait_for_selector(".answer .tensor")
    page.locator(".try textarea").first.fill(json.dumps([0.25] * 20_000))
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer h3")).to_contain_text("[20000]")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#main$"))
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer h3")).to_contain_text("[20000]")
    assert page.locator(".try textarea").first.input_value().count("0.25") == 20_000


def test_what_is_refused_at_three_points_is_not_asked_for_at_all(visit) -> None:
    """The curve is there without its numeric derivatives, and says why."""
    page, asked = visit("/explore/", is_quiet=False), list[str]()
    body = json.dumps({"type": "about:blank", "title": "Unprocessable", "status": 422, "detail": "too much work"})

    def refuse(route: Route) -> None:
        asked.append(route.request.post_data or "")
        route.fulfill(status=422, body=body, content_type="application/problem+json")

    page.route("**/numeric", refuse)
    page.goto(page.url + "softmax_cross_entropy")
    expect(page.locator(".plot .problem, .problem").first).to_contain_text("too much work")
    expect(page.locator(".panels svg, .panels canvas").first).to_be_visible()
    orders = {json.loads(each)["order"] for each in asked}
    assert len(asked) == 3 * len(orders)


def test_a_service_that_is_busy_at_first_is_asked_for_the_other_points(visit) -> None:
    page, asked = visit("/explore/", is_quiet=False), dict[str, int]()
    body = json.dumps({"type": "about:blank", "title": "Unavailable", "status": 503, "detail": "the queue is full"})

    def answer(route: Route) -> None:
        path = route.request.url
        asked[path] = asked.get(path, 0) + 1
        if asked[path] <= 3:
            route.fulfill(status=503, body=body, content_type="application/problem+json")
        else:
            route.continue_()

    page.route("**/v1/ops/softmax_cross_entropy/*", answer)
    page.goto(page.url + "softmax_cross_entropy")
    wait_for_plot(page)
    counts = {path.rpartition("/")[2]: n for path, n in asked.items()}
    assert min(counts["vjp"], counts["hvp"]) > 3, counts
