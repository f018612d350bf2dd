"""docs/frameworks.md: its examples of a framework print the output on the page, in its environment."""

from pathlib import Path

from tests.page_examples import run_examples

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def test_the_examples_print_the_output_on_the_page(url: str, framework: str) -> None:
    run_examples(PAGE, f"<!-- {framework} -->", url)
