"""SECURITY.md, CODE_OF_CONDUCT.md and CITATION.cff: short, with links that hold and the version of the package."""

import re

import pytest
import yaml

import pullback
from tests.docs.test_docs import LINK, has_target, text_of

# Of the schema of the Citation File Format 1.2.0: what it requires, and what else may be there.
REQUIRED = {"authors", "cff-version", "message", "title"}
ALLOWED = REQUIRED | {"abstract", "date-released", "doi", "keywords", "license", "type", "url", "version"}
ALLOWED |= {"repository-code"}


@pytest.mark.parametrize("page", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"])
def test_links_have_targets_and_no_address_is_made_up(page: str) -> None:
    text = text_of(page)
    assert [link for link in LINK.findall(text) if "://" not in link and not has_target(page, link)] == []
    assert re.findall(r"[\w.]+@[\w.]+\.\w+", text) == []


def test_the_citation_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert set(citation) >= REQUIRED
    assert set(citation) <= ALLOWED
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    # A person has names, an entity has one.
    assert all(
        {"name"} <= set(author) or {"given-names", "family-names"} <= set(author) for author in citation["authors"]
    )
    assert citation["version"] == pullback.__version__
    assert citation["license"] == "Apache-2.0"
