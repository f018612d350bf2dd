"""A hook of MkDocs: formulas in TeX become MathML while the site is built, so browsers need no script for them."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What pymdownx.arithmatex makes of $...$ and $$...$$.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAYED = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Replace the formulas of a page."""
    content = DISPLAYED.sub(lambda found: f'<div class="formula">{mathml(found[1], "block")}</div>', content)
    return INLINE.sub(lambda found: mathml(found[1], "inline"), content)


def mathml(tex: str, display: str) -> str:
    """Return a formula as MathML; raises ``PluginError`` if it has a command that is unknown."""
    made = convert(html.unescape(tex).strip(), display=display)
    if "\\" in html.unescape(made):
        raise PluginError(f"expected a formula without unknown commands, got {tex}")
    return made
