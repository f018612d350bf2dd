"""docs/clients.md: its examples of a client print the output on the page, in the environment of that client."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from page_examples import run_examples

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def test_the_examples_print_the_output_on_the_page(url, client):
    run_examples(PAGE, f"<!-- {client} -->", url)


def test_the_examples_with_a_key_print_the_output_on_the_page(guarded_url, key, client):
    mark = f"<!-- {client} with a key -->"
    if mark not in PAGE.read_text(encoding="utf-8"):
        pytest.skip(f"the page has no example of {client} with a key")
    run_examples(PAGE, mark, guarded_url, PULLBACK_KEY=key)
