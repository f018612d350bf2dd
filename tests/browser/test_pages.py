"""The pages of the explorer: every op's, the plot, its states, the address, and who may read it."""

import ast
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import ROOT, cursor, number, wait_for_plot
from playwright.sync_api import Page, expect

sys.path.append(str(ROOT / "tests"))
from page_examples import node

AXE = ROOT / "build" / "clients-browser" / "packages" / "node_modules" / "axe-core" / "axe.min.js"


WRONG = ("wrong_cube", "wrong_dot", "wrong_large")


def names_of(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/v1/ops", timeout=60) as response:
        return [op["name"] for op in json.load(response)["ops"]]


def row(page: Page, order: int) -> list[str]:
    """Return the cells of a derivative in the table of the numbers at the cursor."""
    return page.locator(".readout tbody tr").nth(order - 1).locator("td").all_inner_texts()


def violations(page: Page) -> list[str]:
    # The policy of the pages forbids inline scripts, which is how Playwright adds one.
    page.evaluate(f"() => {{ {AXE.read_text(encoding='utf-8')} }}")
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def test_every_op_has_a_page(url, visit) -> None:
    page = visit("/explore")
    names = names_of(url)
    assert sorted(page.locator(".card h3").all_inner_texts()) == sorted(names)
    assert set(WRONG) < set(names)
    for name in (*names, "square.vjp"):
        page.goto(f"{url}/explore/{name}")
        expect(page.locator("h1")).to_have_text(name)
        page.wait_for_selector(".panels canvas, .problem:visible")
        if page.get_by_label("cotangent", exact=True).count():
            # The numeric derivatives along a line take seconds for some ops; another test has one.
            wait_for_plot(page)
        assert page.locator(".problem:visible").count() == 0, name
        assert page.locator(".panels canvas").count() in (3, 5), name
        if name not in WRONG:
            assert page.locator(".badge.wrong").count() == 0, name


def test_the_list_is_searched_and_filtered(visit) -> None:
    page = visit("/explore")
    page.get_by_label("search").fill("eig")
    expect(page.locator(".card h3")).to_have_text(["conv_eig", "self_adjoint_eig"])
    page.get_by_label("search").fill("")
    page.get_by_label("claim").select_option("formula")
    expect(page.locator(".card h3")).to_have_text(["clip_gradient"])
    page.reload()
    expect(page.locator(".card h3")).to_have_text(["clip_gradient"])


def test_the_plot_of_square_has_three_curves_with_the_right_numbers(visit) -> None:
    page = visit("/explore/square?from=-4&to=6")
    wait_for_plot(page)
    expect(page.locator(".panel-name")).to_have_text(["y", "f′", "f″"])
    expect(page.locator(".panel-title .badge.right")).to_have_count(2)
    page.locator(".panels").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        x, y = map(number, re.findall(r"= (\S+?)(?:$|:)", page.locator(".readout caption").inner_text()))
        assert y == pytest.approx(x * x, rel=1e-6)
        for order, right in ((1, 2 * x), (2, 2.0)):
            analytic, numeric, bars, verdict = row(page, order)
            value, bar = map(number, numeric.split(" ± "))
            assert number(analytic) == pytest.approx(right, rel=1e-6)
            assert value == pytest.approx(right, rel=1e-6)
            assert 0 < bar < 1e-10
            assert abs(number(bars)) < 1
            assert verdict == "agrees"
    assert "agrees" in page.locator("p.hidden[role=status]").inner_text()


def test_the_first_plot_of_a_softmax_moves(visit) -> None:
    page = visit("/explore/shares")
    wait_for_plot(page)
    expect(page.locator(".panel-title .badge.right")).to_have_count(2)
    page.locator(".panels").focus()
    page.keyboard.press("ArrowRight")
    assert abs(number(row(page, 1)[0])) > 1e-3


def test_a_declared_second_order_is_shown_as_what_it_is(visit, picture, output: Path) -> None:
    page = visit("/explore/log1pexp2")
    wait_for_plot(page)
    expect(page.locator(".panel-title .badge")).to_have_class(["badge right", "badge declared"])
    assert "not the derivative of f′" in page.locator(".badge.declared").first.inner_text()
    analytic, numeric, claimed, _, verdict = row(page, 2)
    assert number(analytic) == number(claimed)
    assert abs(number(analytic) - number(numeric.split(" ± ")[0])) > 0.1
    assert verdict == "as declared"
    page.screenshot(path=output / "declared.png", full_page=True)
    picture(page.locator("#plot"), "explorer-plot.png")


def test_a_wrong_op_is_red_and_fails(visit, picture, output: Path) -> None:
    page = visit("/explore/wrong_cube")
    wait_for_plot(page)
    expect(page.locator(".panel-title .badge")).to_have_class(["badge wrong", "badge right"])
    assert re.search(r"wrong: .* at (400|401) of", page.locator(".panel-title .badge.wrong").inner_text())
    assert row(page, 1)[-1] == "wrong"
    page.get_by_role("button", name="Check this op").click()
    page.wait_for_selector(".verdict-line.fail")
    failed = page.locator(".checks tr", has=page.locator("th", has_text=re.compile("^derivative$")))
    expect(failed.locator(".badge.fail").first).to_be_visible()
    finding = page.locator(".finding.fail").first
    assert "pullback call wrong_cube vjp" in finding.inner_text()
    page.screenshot(path=output / "wrong.png", full_page=True)
    picture(page.locator("#verdict"), "explorer-verdict.png")
    fault = number(re.findall(r"x = (\S+):", finding.locator(".numbers").inner_text())[0])
    before = page.url
    finding.get_by_role("button", name="Show it in the plot").click()
    page.wait_for_function("() => document.querySelector('.panels').dataset.drawn === '2'")
    assert {"from=", "to="} <= set(re.findall(r"from=|to=", page.url))
    assert cursor(page) == pytest.approx(fault, rel=1e-7)
    page.reload()
    wait_for_plot(page)
    assert cursor(page) == pytest.approx(fault, rel=1e-7)
    page.go_back()
    page.wait_for_url(before)


def test_a_finding_of_several_inputs_is_shown_along_the_number_at_fault(visit) -> None:
    page = visit("/explore/wrong_dot")
    page.get_by_role("button", name="Check this op").click()
    page.wait_for_selector(".verdict-line.fail")
    finding = page.locator(".finding.fail", has_text="derivative").filter(has_text="db[").first
    [index] = re.findall(r"db\[(\d+)\]", finding.inner_text())
    drawn = int(page.locator(".panels").get_attribute("data-drawn") or 0)
    finding.get_by_role("button", name="Show it in the plot").click()
    page.wait_for_function(f"() => Number(document.querySelector('.panels').dataset.drawn) > {drawn}")
    wait_for_plot(page)
    expect(page.locator(".panel-title .badge").first).to_have_class("badge wrong")
    assert cursor(page) == 0
    fields = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
    assert fields["along"] == f"b:{index}"
    assert float(fields["from"]) == -float(fields["to"])
    point = json.loads(fields["at"])
    assert len(point["a"]) == len(point["b"]) > int(index)
    assert page.get_by_label("direction v").input_value() == f"b:{index}"
    # Whoever opens the address sees the same, and an example leads back.
    page.reload()
    wait_for_plot(page)
    expect(page.locator(".panel-title .badge").first).to_have_class("badge wrong")
    page.get_by_label("through example").select_option("some")
    assert "at=" not in page.url


def test_a_finding_at_a_large_point_is_shown_in_the_plot(visit) -> None:
    """The address has no room for the point, which the history of the browser keeps."""
    page = visit("/explore/wrong_large")
    page.get_by_role("button", name="Check this op").click()
    page.wait_for_selector(".verdict-line.fail")
    finding = page.locator(".finding.fail", has_text="derivative").first
    expect(finding).to_contain_text("@point.json")
    finding.get_by_role("button", name="Show it in the plot").click()
    expect(page.locator(".panel-title .badge").first).to_have_class("badge wrong", timeout=60_000)
    assert "at=" not in page.url
    page.reload()
    expect(page.locator(".panel-title .badge").first).to_have_class("badge wrong", timeout=60_000)


def test_a_check_fills_its_table_and_can_be_cancelled(visit) -> None:
    page = visit("/explore/self_adjoint_eig")
    page.get_by_role("button", name="Check this op").click()
    page.wait_for_selector(".checks tr.running")
    page.wait_for_selector(".checks td .badge.pass")
    assert page.locator("progress").is_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".verdict-line")).to_contain_text("Cancelled")
    assert page.get_by_role("button", name="Check this op").is_enabled()
    assert page.locator(".checks tr.running").count() == 0


def test_what_was_tried_is_in_the_address(visit, output: Path) -> None:
    page = visit("/explore/safe_norm")
    page.get_by_label("operation").select_option("hessian")
    page.locator(".try textarea").first.fill("[[1, 2, 2], [0, 3, 4]]")
    page.get_by_role("button", name="Evaluate").click()
    page.wait_for_selector(".answer canvas.heat")
    shown = page.locator(".answer table").inner_text()
    expect(page.locator(".answer h3")).to_contain_text("hessian.x.x")
    code = page.locator(".snippets pre").all_text_contents()
    assert len(code) == 5
    assert all("safe_norm" in each and "2" in each for each in code)
    wait_for_plot(page)
    page.screenshot(path=output / "tried.png", full_page=True)
    anew = visit(page.url.partition("127.0.0.1")[2].partition("/")[2].join(["/", ""]))
    anew.wait_for_selector(".answer canvas.heat")
    assert anew.locator(".answer table").inner_text() == shown


def test_rounding_errors_stand_beside_the_numbers(visit, output: Path) -> None:
    page = visit("/explore/log1pexp2?t=gradients&t.order=2&t.digits=1&dtype=float32&t.inputs.x=[1,100]")
    page.wait_for_selector(".answer .tensor")
    texts = page.locator(".answer pre").all_text_contents()
    assert len(texts) >= 2
    assert all(text.count("±") == 2 for text in texts)
    assert texts[-1].endswith("± ∞]")
    assert "uncertainty" not in page.locator(".answer").inner_text()
    assert '"digits":true' in "".join(page.locator(".snippets pre").all_text_contents()).replace(" ", "")
    page.get_by_label("rounding errors").select_option("hidden")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer")).not_to_contain_text("±")
    page.screenshot(path=output / "digits.png", full_page=True)


def test_whole_numbers_keep_their_digits(visit) -> None:
    page = visit("/explore/counted?t=forward&t.digits=1")
    page.wait_for_selector(".answer .tensor")
    count = page.locator(".answer .tensor").filter(has=page.locator("h3", has_text="count"))
    expect(count.locator("pre")).to_have_text("9007199254740993")
    expect(count).to_contain_text("± none: ")


@pytest.mark.parametrize("operation", ["gradients", "jvp", "numeric"])
def test_the_lines_of_other_programs_ask_the_same(visit, operation: str) -> None:
    page = visit(f"/explore/softmax_cross_entropy?t={operation}&dtype=float32")
    page.wait_for_selector(".answer .tensor")
    languages, texts = (page.locator(f".snippet {part}").all_text_contents() for part in ("summary", "pre"))
    lines = dict(zip(languages, texts, strict=True))
    programs = [
        ["sh", "-c", lines["curl"]],
        [node(), "--input-type=module", "--eval", lines["JavaScript"].replace("response.json()", "response.text()")],
    ]
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True, timeout=60)
    answers = [run(program).stdout for program in programs]
    one, other = map(json.loads, answers)
    assert one == other
    assert set(one) & {"gradients", "tangents", "derivatives"}
    for language, text in lines.items():
        if language in ("Python", "JAX", "PyTorch"):
            ast.parse(text)


@pytest.mark.parametrize("op", ["names", "roi_pool", "conv_eig"])
def test_the_lines_for_frameworks_run(visit, op: str) -> None:
    for operation in ("jvp", "forward"):
        page = visit(f"/explore/{op}?t={operation}")
        page.wait_for_selector(".answer .tensor")
        for framework, title in (("jax", "JAX"), ("torch", "PyTorch")):
            lines = page.locator(".snippet", has_text=title).locator("pre").text_content() or ""
            targets = [node.targets[0] for node in ast.parse(lines).body if isinstance(node, ast.Assign)]
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            assert len(names) == len(set(names)), lines
            # Tests of the explorer do not need the environments of the frameworks.
            if (python := ROOT / "build" / f"frameworks-{framework}" / "bin" / "python").exists():
                env = {**os.environ, "PYTHONPATH": str(ROOT)}
                run = functools.partial(subprocess.run, capture_output=True, text=True, check=False, timeout=120)
                done = run([python, "-P", "-c", lines], env=env)
                assert done.returncode == 0, f"{lines}\n{done.stderr}"


def test_the_error_of_the_service_is_shown_in_its_words(visit) -> None:
    page = visit("/explore/square", is_quiet=False)
    page.locator(".try textarea").first.fill('["3"]')
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer .problem")).to_contain_text("expected a number")
    page.goto(page.url.replace("/square", "/squar"))
    expect(page.locator(".problem")).to_contain_text("did you mean square")


def test_the_keyboard_is_enough(visit) -> None:
    page = visit("/explore/square")
    wait_for_plot(page)

    def reach(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"the Tab key does not reach {selector}")

    reach(".panels")
    page.keyboard.press("+")
    page.wait_for_function("() => document.querySelector('.panels').dataset.drawn === '2'")
    zoomed = page.url
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_function("() => document.querySelector('.panels').dataset.drawn === '3'")
    assert page.url != zoomed
    page.keyboard.press("0")
    page.wait_for_function("() => !location.search")
    reach("#verdict button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".verdict-line.pass")
    reach(".try button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer .tensor")


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
def test_everybody_can_read_it(visit, output: Path, width: int, dark: bool) -> None:
    page = visit("/explore", width=width, dark=dark)
    page.wait_for_selector(".sketch path")
    assert violations(page) == []
    page.screenshot(path=output / f"list-{width}.png")
    page.goto(page.url + "/sign?t=jacobian")
    page.get_by_role("button", name="Check this op").click()
    wait_for_plot(page)
    page.wait_for_selector(".verdict-line.pass")
    page.wait_for_selector(".answer canvas.heat")
    assert violations(page) == []
    for path in ("", "/sign"):
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, path
        page.goto(page.url.partition("/explore")[0] + "/explore" + path)
        page.wait_for_selector("h1")
    wait_for_plot(page)
    page.screenshot(path=output / f"sign-{width}.png", full_page=True)


def test_a_tab_asks_for_a_key_once(visit, request: pytest.FixtureRequest) -> None:
    url, key = request.config.getoption("guarded_url"), request.config.getoption("key")
    page = visit("/explore/square", at=url, is_quiet=False)
    field = page.get_by_label("key", exact=True)
    field.fill("pullback_not-this-one")
    field.press("Enter")
    expect(page.locator("dialog .problem")).to_be_visible()
    assert violations(page) == []
    field.fill(key)
    field.press("Enter")
    wait_for_plot(page)
    assert key not in page.url
    assert page.evaluate("() => [localStorage.length, document.cookie]") == [0, ""]
    for path in ("/explore", "/explore/sign"):
        page.goto(f"{url}{path}")
        page.wait_for_selector(".card h3, .panels canvas")
        expect(page.locator("dialog[open]")).to_have_count(0)
    # Another tab has none, and a key that is no longer valid is asked for anew.
    page.evaluate("() => sessionStorage.setItem('pullback.key', 'pullback_no-longer')")
    page.reload()
    expect(page.locator("dialog .problem")).to_be_visible()
    visit("/explore/square", at=url, is_quiet=False).wait_for_selector("dialog[open]")


def test_the_plot_comes_at_once(url, visit, output: Path) -> None:
    """Write down the median time from a click on an op to its plot with the numeric derivatives."""
    times: list[float] = []
    page = visit("/explore")
    for name in ("square", "log1pexp", "log1pexp2", "relu", "sign", "round_ste", "wrong_cube"):
        page.goto(f"{url}/explore")
        page.locator(".card h3 a", has_text=re.compile(f"^{name}$")).click()
        wait_for_plot(page)
        times.append(page.evaluate("() => performance.now()"))
    text = f"from click to plot: {statistics.median(times):.0f} ms at the median, {max(times):.0f} ms at most"
    (output / "times.txt").write_text(f"{text}\n", encoding="utf-8")


def test_a_graph_is_drawn_with_links_to_its_ops(visit) -> None:
    page = visit("/explore/loss")
    picture = page.get_by_role("img", name="3 nodes between the inputs on the left and the outputs on the right")
    expect(picture.locator(".name")).to_have_text(["a", "x", "ax", "norm", "loss", "y"])
    lefts = [box["x"] for box in (each.bounding_box() for each in picture.locator("rect").all()) if box]
    assert lefts == sorted(lefts)
    assert lefts[0] == lefts[1]
    expect(picture.locator(".edge")).to_have_count(5)
    wait_for_plot(page)
    page.get_by_text("The nodes as a list").press("Enter")
    expect(page.locator(".nodes li")).to_have_count(6)
    expect(page.locator(".nodes li").nth(2)).to_have_text("ax = matvec(a=a, x=x)")
    assert violations(page) == []
    page.locator(".nodes a").first.press("Enter")
    expect(page.locator("h1")).to_have_text("matvec")
    page.go_back()
    page.locator(".graph .node").nth(1).click()
    expect(page.locator("h1")).to_have_text("safe_norm")
