"""Headers that differ from request to request: the fast path takes such requests, and answers as the general path."""

from itertools import count, product

import pytest

from tests.fast_path.both import Both
from tests.fast_path.wire import post

pytestmark = pytest.mark.slow

PATH = "/v1/ops/log1pexp/vjp"
JSON = "content-type: application/json"
NUMBERS = count()
TRACE = "00-%032x-00f067aa0ba902b7-01"
NAMES = (
    *("traceparent", "TraceParent", "tracestate", "baggage", "b3", "X-B3-TraceId", "x-b3-sampled", "X-Request-ID"),
    *("x-correlation-id", "X-Amzn-Trace-Id", "x-cloud-trace-context", "X-Forwarded-For", "x-forwarded-proto"),
    *("x-real-ip", "Forwarded", "Via", "Cookie", "Accept-Language", "User-Agent", "Referer", "Date", "Authorization"),
)


def body() -> bytes:
    return b'{"inputs":{"x":[%d.25,1.5]}}' % next(NUMBERS)


@pytest.fixture
def warmed(both: Both) -> Both:
    """Both services, of which one has a template for a request without such headers."""
    both.warm(lambda _: post(PATH, body(), JSON))
    return both


def ids(both: Both, *headers: str) -> list[bytes]:
    """Return the request id of the answer of each service to a request with these headers."""
    both.exchange(post(PATH, body(), JSON, *headers))
    return both.ids()


def test_their_values_may_differ(warmed: Both) -> None:
    for name in NAMES:
        with warmed.takes(4):
            warmed.same(*(post(PATH, body(), JSON, f"{name}: {TRACE % number}") for number in range(2)))
            warmed.same(post(PATH, body(), f"{name}:{TRACE % 5}", JSON), post(PATH, body(), JSON, f"{name}:"))


def test_a_client_that_always_sends_them_gets_a_template(both: Both) -> None:
    """As behind a proxy that traces, with a deadline in each request."""

    def request(number: int) -> bytes:
        own = (f"traceparent: {TRACE % number}", f"X-Request-ID: r{number}", f"pullback-deadline-ms: {60_000 + number}")
        return post(PATH, body(), JSON, "x-behind: a proxy", *own, f"X-Forwarded-For: 10.0.0.{number % 250}")

    both.warm(request)


def test_a_request_keeps_its_id_if_it_is_valid(warmed: Both) -> None:
    for value in ("mine", "A.b-c_9", "x" * 64, " mine", "\tmine"):
        with warmed.takes(1):
            assert ids(warmed, f"X-Request-Id:{value}") == [value.strip().encode()] * 2, value
    for value in ("", " ", "a ", "a b", "x" * 65, "a\xe9", "a,b", '"a"'):
        with warmed.takes(1):
            fast, general = ids(warmed, f"X-Request-Id: {value}".encode().decode("latin-1"))
        assert fast != general, value
        assert {len(fast.split(b"-")), len(general.split(b"-"))} == {2}, value
    for values in (("a", "b"), ("a", "b c"), ("b c", "a")):  # the last one counts
        fast, general = ids(warmed, f"x-request-id: {values[0]}", f"X-REQUEST-ID: {values[1]}")
        assert (fast == general) == (values[-1] != "b c")
        assert (fast == values[-1].encode()) == (values[-1] != "b c")


def test_deadlines(warmed: Both) -> None:
    def is_taken(request: bytes) -> bool:
        before = warmed.taken()
        warmed.same(request)
        return warmed.taken() > before

    for value in ("60000", "1000", "0060000", "x", "", "0", "-1", "1.5", "1e3", "9" * 40, " 60000", "60000 ", "+1"):
        request = post(PATH, body(), JSON, f"Pullback-Deadline-Ms: {value}")
        if value.lstrip().isdigit() and 0 < int(value) < 1e9:
            # A busy machine may displace the template, and leave too little of a second.
            assert any(warmed.warm(lambda _: post(PATH, body(), JSON)) and is_taken(request) for _ in range(5)), value
        else:
            assert not is_taken(request), value


OTHER_LINES = (
    *("traceparent: a\x01b", "traceparent: a\x00b", "traceparent: a\x7fb", "traceparent: a\nhost: evil.example"),
    *("traceparent: a\ncontent-length: 3", "traceparent: a\r\n b", "traceparent : a", "traceparentx: a"),
    *("x-request-id: a\nb", "traceparent"),
)


def test_other_lines_are_no_such_headers(warmed: Both) -> None:
    for line, _ in product(OTHER_LINES, range(3)):
        warmed.on_new(post(PATH, body(), JSON, line, "connection: close"))
        warmed.on_new(post(PATH, body(), JSON, line) + post(PATH, body(), JSON, "connection: close"))


@pytest.mark.parametrize(
    ("version", "header"), [("1.0", "x-tag: last"), ("1.0", "connection: keep-alive"), ("1.1", "connection: close")]
)
def test_the_last_request_of_a_connection(both: Both, version: str, header: str) -> None:
    """The fast path takes it, and closes the connection."""

    def request(number: int) -> bytes:
        return post(PATH, body(), JSON, header).replace(b"HTTP/1.1", b"HTTP/" + version.encode())

    both.warm(request)
    with both.takes(3, 3):
        assert all(answer.is_last for answer in both.same(*map(request, range(3))))


def test_the_version_of_http_is_part_of_the_key(start) -> None:
    """Where any host may be named, HTTP/1.0 needs none, and HTTP/1.1 one."""
    both = Both(*(start(EXPRESS=fast, HOSTS="*").wait_until_ready() for fast in "10"))

    def request(number: int, version: bytes = b"1.0") -> bytes:
        del number
        made = post(PATH, body(), JSON, "x-tag: without a host").replace(b"HTTP/1.1", b"HTTP/" + version)
        return made.replace(b"host: localhost\r\n", b"")

    both.warm(request)
    assert [answer.status for answer in both.same(request(0), request(0, b"1.1"), request(0))] == [200, 400, 200]
    both.close()


def test_headers_that_change_an_answer_still_count(warmed: Both) -> None:
    safetensors = "accept: application/vnd.safetensors"
    answers = warmed.same(
        *(post(PATH, body(), JSON, f"traceparent: {TRACE % number}", safetensors) for number in range(12)),
        *(post(PATH, body(), JSON, f"traceparent: {TRACE % number}") for number in range(3)),
        post(PATH, body(), JSON, "x-request-id: a", "origin: http://evil.example"),
    )
    kinds = [b"safetensors" in answer.head for answer in answers]
    assert kinds == [True] * 12 + [False] * 4
    assert answers[-1].status == 403
