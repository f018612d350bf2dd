"""The site of the documentation, which ``make docs`` builds, has every page, and the formulas and plots of every op."""

import re
from collections.abc import Iterator
from hashlib import sha256
from xml.etree import ElementTree

import numpy as np
import pytest

from ops import Registry, discover
from tests.conftest import ROOT
from website.op_formulas import FORMULAS
from website.op_pages import HEIGHT, HIGH, LEFT, LOW, MARGIN, RIGHT, WIDTH, figure, op_reference

SVG = "{http://www.w3.org/2000/svg}"
POINT = re.compile(r"([ML])([-\d.]+) ([-\d.]+)")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return discover(())


def test_every_page_is_in_the_navigation_once() -> None:
    text = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"(?:- |: )([\w-]+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_font_is_that_of_make_vendor() -> None:
    vendor = ROOT / "website" / "vendor"
    sums = dict(reversed(line.split("  ")) for line in (vendor / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in vendor.glob("math.*")} == sums
    assert "url(math.woff2)" in (ROOT / "website" / "extra.css").read_text(encoding="utf-8")


def test_every_op_has_formulas_and_every_elementwise_op_a_plot(registry: Registry) -> None:
    assert FORMULAS.keys() == registry.ops.keys()
    page = "\n".join(op_reference(registry))
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == list(FORMULAS)
    elementwise = {name for name, op in registry.ops.items() if op.batching_for(op.attrs()) == "elementwise"}
    assert set(re.findall(r'aria-label="Plot of (\w+)', page)) == elementwise


def curve(drawing: ElementTree.Element, kind: str) -> Iterator[tuple[str, float, float]]:
    """Yield the points of a curve in the numbers of its op, and whether a line leads there (L) or not (M)."""
    [path] = [each for each in drawing.iter() if each.tag.endswith("path") and each.get("class") == kind]
    for letter, x, y in POINT.findall(path.attrib["d"]):
        at = LEFT + (float(x) - MARGIN) / (WIDTH - 2 * MARGIN) * (RIGHT - LEFT)
        yield letter, at, HIGH - (float(y) - MARGIN / 2) / (HEIGHT - MARGIN) * (HIGH - LOW)


@pytest.mark.parametrize(
    ("name", "value", "gradient", "pieces"),
    [
        ("square", np.square, lambda x: 2 * x, {"value": 1, "gradient": 1}),
        ("sign", np.sign, lambda x: (np.abs(x) <= 1) * 1.0, {"value": 3, "gradient": 3}),
        ("divide", lambda x: x / 2, lambda x: x * 0 + 0.5, {"value": 1, "gradient": 1}),
    ],
)
def test_a_plot_shows_the_op_and_its_gradient(registry: Registry, name: str, value, gradient, pieces) -> None:
    drawing = ElementTree.fromstring(figure(registry.ops[name]).strip())
    for kind, function in (("value", value), ("gradient", gradient)):
        points = list(curve(drawing, kind))
        # The numbers of a path have one decimal, a 50th of a unit; near a jump, x may be on its other side.
        wrong = [(x, y) for _, x, y in points if abs(y - function(x)) > 0.08 and abs(abs(x) - 0.5) > 0.52]
        near = [(x, y) for _, x, y in points if np.abs(function(np.array([x - 0.02, x, x + 0.02])) - y).min() > 0.08]
        assert (wrong, near) == ([], [])
        assert max(np.diff([x for _, x, _ in points])) < 2 * (RIGHT - LEFT) / 600
        assert [letter for letter, _, _ in points].count("M") == pieces[kind]


def test_the_page_for_unknown_addresses_loads_nothing() -> None:
    text = (ROOT / "website" / "404.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|src=|href=\"/|<link", text)
