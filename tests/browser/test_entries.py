"""What a person enters: it is sent as it was entered, in the precision that the page shows, or refused in his words."""

import json
import re
import urllib.request
from typing import Any

import pytest
from conftest import wait_for_plot
from playwright.sync_api import Page, expect


def sent(page: Page) -> list[Any]:
    """Return a list that gets the bodies of the page's requests that compute."""
    bodies: list[Any] = []
    page.on("request", lambda r: "/v1/ops/" in r.url and r.method == "POST" and bodies.append(r.post_data_json))
    return bodies


def evaluate(page: Page, text: str) -> None:
    page.locator(".try textarea").first.fill(text)
    page.get_by_role("button", name="Evaluate").click()


def test_a_page_has_one_precision(visit) -> None:
    page = visit("/explore/square")
    bodies = sent(page)
    for dtype, other in (("float64", "float32"), ("float32", "float64")):
        page.get_by_role("combobox", name="dtype").select_option(dtype)
        page.get_by_role("button", name="Evaluate").click()
        expect(page.locator(".answer h3").first).to_contain_text(f"{dtype} [")
        wait_for_plot(page)
        for code in page.locator(".snippets pre").all_text_contents():
            assert dtype in code
            assert other not in code
        assert {body["dtype"] for body in bodies} == {dtype}
        bodies.clear()


@pytest.mark.parametrize(
    ("op", "label", "text", "got"),
    [
        ("square", "x from", "", "x from: expected a number, such as 1.5, got nothing"),
        ("square", "x from", "1e400", "got 1e400"),
        ("square", "x from", "-1e308", "got -1e308 to"),
        ("square", "to", "abc", "got abc"),
        ("square", "to", "-50", "got -3 to -50"),
        ("square", "cotangent", "", "got nothing"),
        ("square", "cotangent", "0x10", "got 0x10"),
        ("wrong_dot", "t from", "1e400", "got 1e400"),
        ("wrong_dot", "cotangent c, in JSON (empty: 1, 1/2, 1/3, …)", "[NaN]", "got [NaN]"),
    ],
)
def test_what_is_no_range_is_refused_and_dims_the_curve(visit, op: str, label: str, text: str, got: str) -> None:
    page = visit(f"/explore/{op}")
    wait_for_plot(page)
    bodies, field = sent(page), page.locator("#plot").get_by_label(label, exact=True)
    before = field.input_value()
    field.fill(text)
    field.press("Enter")
    expect(page.locator("#plot .problem")).to_contain_text(got)
    expect(page.locator(".panels canvas").first).to_have_css("opacity", "0.3")
    assert field.input_value() == text
    assert bodies == []
    page.reload()
    expect(page.locator("#plot .problem")).to_contain_text(got)
    field.fill(before)
    field.press("Enter")
    wait_for_plot(page)
    expect(page.locator("#plot .problem")).to_be_hidden()
    expect(page.locator(".panels canvas").first).to_have_css("opacity", "1")


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "inputs.x: expected JSON, such as [1, 2.5] or 3, got nothing"),
        ("abc", "got abc"),
        ("[NaN]", "got [NaN] (write"),
        ("[1, 1e400]", "got 1e400"),
        ("[1e-400]", "got 1e-400"),
        ("[9007199254740993]", "got 9007199254740993"),
    ],
)
def test_what_is_no_tensor_is_refused_as_it_was_entered(visit, text: str, got: str) -> None:
    page = visit("/explore/square")
    wait_for_plot(page)
    bodies = sent(page)
    evaluate(page, text)
    expect(page.locator(".answer .problem")).to_contain_text(got)
    expect(page.locator(".snippets .problem")).to_contain_text(got)
    page.reload()
    wait_for_plot(page)
    assert page.locator(".try textarea").first.input_value() == text
    assert all(body["inputs"]["x"] != json.dumps(text) and None not in body["inputs"]["x"] for body in bodies)


@pytest.mark.parametrize("text", ["", "abc", "1e400", "1e-400", "9007199254740993"])
def test_an_attribute_that_is_no_number_is_refused_as_it_was_entered(visit, text: str) -> None:
    page = visit("/explore/scale_gradient")
    wait_for_plot(page)
    bodies, field = sent(page), page.get_by_role("group", name="Attributes, dtype and mode").locator("input").first
    field.fill(text)
    field.press("Enter")
    expect(page.locator("#plot .problem")).to_contain_text(
        re.compile(f"attrs.scale: expected .*, got {text or 'nothing'}")
    )
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer .problem")).to_contain_text("attrs.scale")
    assert bodies == []


def test_the_sign_of_zero_is_kept(visit) -> None:
    page = visit("/explore/scale_gradient?t=forward")
    page.wait_for_selector(".answer .tensor")
    bodies: list[str] = []
    page.on("request", lambda r: r.url.endswith("/forward") and bodies.append(r.post_data))
    evaluate(page, "[-0, 0.5]")
    expect(page.locator(".answer h3")).to_contain_text("[2]")
    assert [body.partition(',"attrs"')[0] for body in bodies] == ['{"inputs":{"x":[-0.0,0.5]}']
    assert all("-0.0" in code for code in page.locator(".snippets pre").all_text_contents())


@pytest.mark.parametrize(("operation", "field"), [("jvp", "tangents"), ("hvp", "vectors")])
def test_the_direction_that_is_not_given_is_ones(visit, operation: str, field: str) -> None:
    page = visit(f"/explore/square?t={operation}")
    page.wait_for_selector(".answer .tensor")
    bodies = sent(page)
    evaluate(page, "[[1, 2], [3, -4]]")
    expect(page.locator(".answer .tensor h3").last).to_contain_text("float64 [2, 2]")
    assert [body[field] for body in bodies if field in body] == [{"x": [[1, 1], [1, 1]]}]
    expect(page.locator(".try textarea").nth(1)).to_have_attribute("placeholder", "ones in the shape of x")


def test_a_direction_that_does_not_fit_is_refused(visit) -> None:
    page = visit("/explore/wrong_dot")
    wait_for_plot(page)
    page.get_by_label("direction v").select_option("given")
    field = page.get_by_label("v, in JSON", exact=True)
    for text, got in (
        ('{"b": [1]}', "expected the shape"),
        ('{"z": [1]}', "got z"),
        ("", "got nothing"),
        ("[1]", "got [1]"),
    ):
        field.fill(text)
        field.press("Enter")
        expect(page.locator("#plot .problem")).to_contain_text(got)


def test_an_answer_that_does_not_belong_to_its_fields_is_dimmed(visit) -> None:
    page = visit("/explore/square?t=forward")
    page.wait_for_selector(".answer .tensor")
    page.locator(".try textarea").first.fill("[7]")
    page.locator(".try textarea").first.press("Tab")
    expect(page.locator(".answer")).to_have_class("answer stale")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer")).to_have_class("answer")


def test_large_inputs_stay_out_of_the_address(visit) -> None:
    page = visit("/explore/square?t=forward")
    page.wait_for_selector(".answer .tensor")
    evaluate(page, json.dumps([0.25] * 20_000))
    expect(page.locator(".answer h3")).to_contain_text("[20000]")
    note = page.locator(".note")
    expect(note).to_contain_text("Too large for the address: inputs.x (")
    assert len(page.url) < 5000
    assert "END" in page.locator(".snippets pre").first.inner_text()
    page.reload()
    expect(page.locator(".answer h3")).to_contain_text("[20000]")
    expect(note).to_be_visible()
    other = visit("/explore" + page.url.partition("/explore")[2])
    expect(other.locator(".answer h3")).to_contain_text("[2, 3]")
    assert other.locator(".note").is_hidden()


def test_parameters_have_a_digest_and_gradients(visit, url: str) -> None:
    with urllib.request.urlopen(f"{url}/v1/ops/scaled", timeout=60) as response:
        own = json.load(response)["parameters_digest"]
    page = visit("/explore/scaled?t=vjp", is_quiet=False)
    bodies = sent(page)
    field = page.get_by_label("parameters", exact=True)
    assert field.input_value() == own
    choice = page.get_by_role("combobox", name="with respect to")
    assert choice.locator("option").all_inner_texts() == ["inputs", "inputs and parameters", "w", "b"]
    for chosen, expected in {"inputs": ["x"], "w": ["w"], "inputs and parameters": ["x", "w", "b"]}.items():
        choice.select_option(chosen)
        bodies.clear()
        page.get_by_role("button", name="Evaluate").click()
        expect(page.locator(".answer h3")).to_contain_text([f"gradients.{name}" for name in expected])
        # The plot asks too, for the gradient in x.
        assert expected in [body.get("wrt", ["x"]) for body in bodies]
        assert not any("parameters" in body for body in bodies)
    assert "t.wrt=inputs" in page.url
    field.fill("0" * 64)
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer .problem")).to_contain_text(own)
    assert "0" * 64 in [body.get("parameters") for body in bodies]
    assert page.locator(".snippets summary").all_inner_texts() == ["curl", "Python", "JavaScript"]
