"""Chromium, with pages that may only ask the service and say nothing on the console."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect, sync_playwright

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 60_000
# On a busy machine, a page may take longer than Playwright's five seconds.
expect.set_options(timeout=PATIENCE_MS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", required=True, help="the URL of the service")
    parser.addoption("--guarded-url", required=True, help="the URL of a service that needs a key")
    parser.addoption("--key", required=True, help="the key")
    parser.addoption("--output", required=True, help="the folder of the screenshots")
    parser.addoption("--pictures", action="store_true", help="make the pictures of the docs anew")


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("url")


@pytest.fixture(scope="session")
def output(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("output"))


@pytest.fixture(scope="session")
def picture(request: pytest.FixtureRequest, output: Path) -> Callable[[Locator, str], None]:
    """Take a picture of a part of a page; with ``--pictures``, for the docs."""
    folder = ROOT / "docs" if request.config.getoption("pictures") else output

    def call(part: Locator, name: str) -> None:
        part.screenshot(path=folder / name)

    return call


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Tests may run as root, in a container, where Chromium has no sandbox.
        path = shutil.which("chromium")
        assert path, "expected Chromium as 'chromium'"
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


Open = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Open]:
    """Open a path in a new window; it must have sent no request to other hosts, and reported no error."""
    faults: list[str] = []
    contexts = []

    def call(
        path: str,
        *,
        at: str = url,
        width: int = 1200,
        height: int = 900,
        dark: bool = False,
        is_quiet: bool = True,
        has_touch: bool = False,
    ) -> Page:
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=has_touch)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        if is_quiet:
            page.on("console", lambda said: faults.append(f"{said.type}: {said.text}"))
            page.on("response", lambda r: r.status >= 400 and faults.append(f"{r.status}: {r.url}"))
        # pytest shows what is printed when a test fails.
        page.on("console", lambda said: print(said.type, said.text))
        page.on("requestfailed", lambda request: print(request.url, request.failure))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda r: r.url.startswith((at, "data:")) or faults.append(f"asked {r.url}"))
        page.goto(at + path)
        return page

    yield call
    for context in contexts:
        context.close()
    assert faults == []


def wait_for_plot(page: Page) -> None:
    """Wait until the plot of an op's page shows the numeric derivatives; if it does not, say what the page shows."""
    try:
        page.wait_for_selector(".panels[data-drawn]:not([aria-busy])")
    except TimeoutError as error:
        raise AssertionError(f"expected a plot, got: {page.locator('body').inner_text()[-2000:]}") from error


def number(text: str) -> float:
    """Return a number that a page shows."""
    return float(text.replace("−", "-"))


def cursor(page: Page) -> float:
    """Return where the cursor of the plot is."""
    return number(page.locator(".readout caption").inner_text().split(":")[0].rpartition("= ")[2])
