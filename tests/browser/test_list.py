"""The list of ops: its groups, the last verdicts, and sketches that leave the service to others."""

import re

from conftest import wait_for_plot
from playwright.sync_api import Page, Route, expect


def test_ops_are_in_groups_with_glue_last(visit) -> None:
    page = visit("/explore")
    titles = ["Yours", "Surrogate gradients", "Numerics", "C++", "Glue"]
    headings = page.locator(".group h2")
    assert [text.split("\n")[0].split("  ")[0] for text in headings.all_inner_texts()] != sorted(titles)
    for i, title in enumerate(titles):
        expect(headings.nth(i)).to_contain_text(title)
    ops = {title: page.locator(".group").nth(i).locator(".card h3").all_inner_texts() for i, title in enumerate(titles)}
    assert {"chain", "wrong_cube"} <= set(ops["Yours"])
    assert {"square", "log1pexp"} <= set(ops["Numerics"])
    assert "sign" in ops["Surrogate gradients"]
    assert "relu" in ops["C++"]
    assert {"add", "reshape"} <= set(ops["Glue"])
    page.get_by_label("search").fill("eig")
    expect(page.locator(".group:visible")).to_have_count(1)


def give_last_checks(page: Page, lasts: dict[str, tuple[str, float]]) -> None:
    """Let the list of ops have these last verdicts, each with its age in seconds."""

    def add(route: Route) -> None:
        answer = route.fetch()
        document = answer.json()
        for op in document["ops"]:
            op.pop("last_check", None)
            if op["name"] in lasts:
                verdict, age = lasts[op["name"]]
                op["last_check"] = {"verdict": verdict, "age_s": age}
        route.fulfill(response=answer, json=document)

    page.route("**/v1/ops", add)


def test_a_card_has_the_last_verdict_with_its_age(visit) -> None:
    page = visit("/explore/wrong_cube")
    wait_for_plot(page)
    lasts = {"square": ("pass", 20.0), "sign": ("fail", 200.0), "relu": ("inconclusive", 9000.0), "add": ("pass", 2e5)}
    give_last_checks(page, lasts)
    page.get_by_role("link", name="Ops").click()
    shown = {"square": "✓ pass just now", "sign": "✗ fail 3 min ago", "relu": "~ inconclusive 2 h ago"}
    for name, text in {**shown, "add": "✓ pass 2 days ago", "log1pexp": "not checked yet"}.items():
        card = page.locator(".card", has=page.get_by_role("link", name=re.compile(f"^{name}$")))
        expect(card.locator(".checked")).to_have_text(text)


def test_the_last_verdict_is_that_of_now(visit) -> None:
    page = visit("/docs")
    page.clock.install()
    lasts = {"sign": ("pass", 20.0)}
    give_last_checks(page, lasts)
    page.goto(page.url.replace("/docs", "/explore?search=sign"))
    card = page.locator(".card", has=page.get_by_role("link", name=re.compile("^sign$")))
    expect(card.locator(".checked")).to_have_text("✓ pass just now")
    for verdict, age, shown in (("pass", 80.0, "✓ pass 1 min ago"), ("fail", 0.0, "✗ fail just now")):
        lasts["sign"] = verdict, age
        page.clock.fast_forward(60_000)
        expect(card.locator(".checked")).to_have_text(shown)
    card.get_by_role("link").click()
    expect(page.locator(".verdict-line")).to_have_text("Last check: ✗ fail just now")


def test_sketches_are_drawn_in_turn_and_only_in_view(visit) -> None:
    page = visit("/docs", height=700, is_quiet=False)
    posted: list[str] = []
    most = running = 0

    def begin(request) -> None:
        nonlocal most, running
        if "/v1/ops/" in request.url:
            running += 1
            most = max(most, running)
            if request.method == "POST":
                posted.append(request.url)
                assert request.post_data_json["mode"] == "eager"

    def end(request) -> None:
        nonlocal running
        running -= "/v1/ops/" in request.url

    page.on("request", begin)
    page.on("requestfinished", end)
    page.goto(page.url.replace("/docs", "/explore"))
    expect(page.locator(".card").first).to_be_visible(timeout=30_000)
    cards = page.locator(".card").all()
    in_view = [card for card in cards if (box := card.bounding_box()) and box["y"] < 700]
    for card in in_view:
        expect(card.locator(".sketch path")).to_have_count(2, timeout=30_000)
    page.wait_for_timeout(500)
    assert most <= 2
    assert len(in_view) < len(cards) / 3
    assert {url.split("/")[-2] for url in posted} == {card.locator("h3").inner_text() for card in in_view}
    assert len(posted) <= 13 * len(in_view)
    cards[-1].scroll_into_view_if_needed()
    expect(cards[-1].locator(".sketch path")).to_have_count(2, timeout=30_000)
