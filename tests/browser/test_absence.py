"""A service that goes away is noticed, and the page goes on when it is back."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit

import pytest
from conftest import wait_for_plot
from playwright.sync_api import Route, expect


class Relay:
    """It passes connections on to a service; while it is closed, its port refuses connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = parts.hostname, parts.port
        self._port = 0
        self._open: list[socket.socket] = []
        self.open()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=64)
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def close(self) -> None:
        # A thread that waits in accept keeps the port.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._to)
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def test_a_service_that_goes_away_comes_back(url, visit) -> None:
    relay = Relay(url)
    page = visit("/explore/square", at=relay.url, is_quiet=False)
    wait_for_plot(page)
    relay.close()
    page.get_by_role("button", name="Zoom in").click()
    expect(page.locator("#away")).to_contain_text("does not answer")
    relay.open()
    expect(page.locator("#away")).to_be_hidden()
    page.wait_for_function("() => document.querySelector('.panels').dataset.drawn === '2'")
    assert page.locator(".problem:visible").count() == 0
    relay.close()


@pytest.mark.parametrize("lost", [1, 2])
def test_a_file_that_does_not_arrive_is_asked_for_again(url, visit, lost: int) -> None:
    """It is lost whenever a read asks for it: ahead and when it is imported, or once."""
    page, reads = visit("/docs", is_quiet=False), []

    def read(route: Route) -> None:
        reads.append(route.request.url)
        route.continue_()

    page.route("**/explore/square", read)
    page.route("**/plot.js", lambda route: route.abort("connectionreset") if len(reads) <= lost else route.continue_())
    page.goto(f"{url}/explore/square")
    wait_for_plot(page)
    assert len(reads) == lost + 1
    reads.clear()
    page.reload()
    wait_for_plot(page)
    assert len(reads) == lost + 1


def test_a_page_whose_service_goes_away_while_it_loads_is_read_again(url, visit) -> None:
    relay = Relay(url)
    page = visit("/docs", at=relay.url, is_quiet=False)
    page.route("**/plot.js", lambda route: (relay.close(), route.abort("connectionreset")), times=1)
    page.goto(f"{relay.url}/explore/square")
    page.wait_for_timeout(3000)
    # It is not left for the error of the browser, which not every browser reads again.
    expect(page.locator(".brand")).to_be_visible()
    relay.open()
    wait_for_plot(page)
    relay.close()


# The error of a module is that of the script that imports it.
@pytest.mark.parametrize(("name", "named"), [("plot.js", "main.js"), ("main.js", "main.js"), ("uPlot.js", "uPlot.js")])
def test_a_file_that_never_arrives_is_named(url, visit, name: str, named: str) -> None:
    page = visit("/docs", is_quiet=False)
    page.route(f"**/{name}", lambda route: route.abort("connectionreset"))
    page.goto(f"{url}/explore/square")
    expect(page.get_by_role("alert").first).to_contain_text(f"{named}). Reload")
    page.unroute_all()
    page.reload()
    wait_for_plot(page)


def test_sketches_that_an_outage_ends_are_drawn_after_it(url, visit) -> None:
    relay = Relay(url)
    page = visit("/docs", at=relay.url, is_quiet=False)
    page.route("**/vjp", lambda route: (relay.close(), route.continue_()))
    page.goto(page.url.replace("/docs", "/explore?search=log1pexp"))
    expect(page.locator("#away")).to_contain_text("does not answer")
    page.unroute_all()
    relay.open()
    for card in page.locator(".card").all():
        expect(card.locator(".sketch path")).to_have_count(2)
    relay.close()


def test_an_evaluation_and_a_check_go_on_after_an_outage(url, visit) -> None:
    relay = Relay(url)
    page = visit("/explore/self_adjoint_eig", at=relay.url, is_quiet=False)
    wait_for_plot(page)
    page.get_by_role("button", name="Check this op").click()
    page.wait_for_selector(".checks tr.running")
    relay.close()
    expect(page.locator(".verdict-line")).to_contain_text("does not answer")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator(".answer")).to_contain_text("does not answer")
    relay.open()
    page.wait_for_selector(".answer .tensor")
    expect(page.locator(".verdict-line")).to_contain_text("The service answers again")
    assert page.get_by_role("button", name="Check this op").is_enabled()
    assert page.locator(".problem:visible").count() == 0
    relay.close()


@pytest.mark.parametrize(("button", "path"), [("Evaluate", "gradients"), ("Zoom in", "numeric")])
def test_a_request_that_stops_the_service_is_repeated_once(visit, button: str, path: str) -> None:
    page = visit("/explore/square", is_quiet=False)
    wait_for_plot(page)
    asked: list[str] = []

    def lose(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route(f"**/{path}", lose)
    page.get_by_role("button", name=button).click()
    expect(page.locator(".problem:visible")).to_contain_text("stopped answering twice", timeout=20_000)
    acts = 1 if path == "gradients" else 2
    assert len(asked) == 2 * acts
    page.unroute(f"**/{path}")
    page.get_by_role("button", name=button).click()
    expect(page.locator(".problem:visible")).to_have_count(0)
