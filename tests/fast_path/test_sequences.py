"""With the fast path as without it: each loop of requests, loops in any order, and loops on many connections."""

import base64
import contextlib
import gzip
import itertools
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tests.fast_path.both import GET, PATIENCE, TAKEN, Both, metric
from tests.fast_path.forms import in_base64, in_safetensors, lists, typed
from tests.fast_path.loops import EDGES, FEATURES, LOOPS, SHARED, TAGS, Loop, of
from tests.fast_path.wire import Answer, Wire, post, with_head
from tests.http.openinference_client import LENGTH, OCTETS, in_json

pytestmark = pytest.mark.slow

JSON = "content-type: application/json"
SHARE, CONNECTIONS = 6, 32
# The float32 that orjson does not write exactly.
AMBIGUOUS = 7.038531e-26


def check_taken(both: Both, loop: Loop) -> None:
    """Send a loop until the fast path takes it, and check that it takes what follows, whatever numbers that has."""
    answers = both.warm(lambda count: loop.request(count, loop.first))
    assert {answer.status for answer in answers} == {200}
    with both.takes(SHARE - 1):  # a busy machine may displace what is brief
        both.same(*(loop.request(1000 + number) for number in range(SHARE)))


# The others take long: ops of rows and of whole calls, and the second dtype of a protocol.
BRIEF = [name for name, loop in LOOPS.items() if loop.names is not None and not name.endswith("float64")]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BRIEF else pytest.mark.thorough) for name in LOOPS]
)
def test_a_loop_is_taken(both: Both, name: str):
    loop = LOOPS[name]
    check_taken(both, loop)
    if loop.names is not None and max(loop.shape, default=1) < 100:
        both.same(*(loop.request(number, of(EDGES)) for number in range(0, len(EDGES), 3)))


KNOWN = (
    GET % b"/health/live",
    GET % b"/v1/ops",
    b"DELETE /v1/ops/square/vjp HTTP/1.1\r\nhost: localhost\r\n\r\n",
    post("/v1/ops/no/vjp", b"{}"),
    post("/v1/ops/log1pexp/vjp", b"{"),
    post("/v1/ops/square/forward", b'{"inputs":{"x":[1e38,7.038531e-26,3.5]}}'),
)


def spoiled(rng: random.Random, request: bytes) -> bytes:
    """Return a request with one byte of its body changed."""
    head, _, body = request.partition(b"\r\n\r\n")
    at = rng.randrange(len(body))
    return (
        head + b"\r\n\r\n" + body[:at] + rng.choice([b"0", b"9", b",", b"]", b"e", b"x", b" ", b"A"]) + body[at + 1 :]
    )


def any_request(rng: random.Random, loops: list[Loop]) -> bytes:
    chance = rng.random()
    if chance < 0.1:
        return rng.choice(KNOWN)
    loop = rng.choice(loops)
    request = loop.request(rng.randrange(10**6), of(EDGES)) if chance < 0.2 else loop.request(rng.randrange(10**6))
    if chance < 0.35:
        return spoiled(rng, request)
    if chance < 0.45:
        return request.replace(b"\r\n", b"\r\ntraceparent: %d\r\n" % rng.randrange(10**9), 1)
    return request


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence(both: Both, seed: int):
    """Requests of several loops in any order, among wrong and unknown ones, in one piece or in several."""
    rng = random.Random(seed)
    loops = [LOOPS[name] for name in rng.sample(sorted(LOOPS), 10)]
    for loop in loops:
        both.warm(loop.request)
    with both.takes(8):
        for _ in range(40):
            requests = [any_request(rng, loops) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
            data = b"".join(requests)
            cuts = sorted(rng.randrange(len(data)) for _ in range(rng.choice([0, 0, 1, 3])))
            pieces = [data[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(data)])]
            both.exchange(*pieces, count=len(requests), pause_s=0.001)


def in_turns(port: int, turns: list[list[bytes]]) -> list[list[Answer]]:
    """Send each turn's requests at once, one on each connection; return the answers, turn by turn."""
    wires, found = [Wire(port) for _ in turns[0]], list[list[Answer]]()
    try:
        for turn in turns:
            for wire, request in zip(wires, turn, strict=True):
                wire.send(request)
            found.append([wire.answer() for wire in wires])
            for number, answer in enumerate(found[-1]):
                if answer.is_last:
                    wires[number].socket.close()
                    wires[number] = Wire(port)
        return found
    finally:
        for wire in wires:
            wire.socket.close()


def check_turns(both: Both, turns: list[list[bytes]]) -> None:
    """Compare the answers on many connections with those of one connection."""
    fast = in_turns(both.services[0].port, turns)
    assert [*itertools.chain.from_iterable(fast)] == both.same(*itertools.chain.from_iterable(turns))


@pytest.mark.slow
def test_many_connections(both: Both):
    """Every request differs from all others, so each answer shows whose it is."""
    rng = random.Random(4)
    loops = [LOOPS[name] for name in rng.sample(sorted(LOOPS), 30)]
    for loop in loops:
        both.warm(loop.request)
    with both.takes(CONNECTIONS * 4):
        check_turns(both, [[any_request(rng, loops) for _ in range(CONNECTIONS)] for _ in range(15)])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 700, 9000])
def test_many_connections_of_one_loop(both: Both, size: int):
    """More numbers than the shortest length of a call has, and than a shared call may have; bodies in several parts."""
    loop = Loop(lists, "forward", "square", shape=(size,))
    both.warm(loop.request)
    check_turns(both, [[loop.request(turn * 100 + each) for each in range(CONNECTIONS)] for turn in range(4)])


def square(text: str) -> Callable[[int], bytes]:
    return lambda count: post("/v1/ops/square/vjp", text.replace("N", f"{count}.5").encode())


def paired(**fields: Any) -> Callable[[int], bytes]:
    """Return requests with tensors of several lengths in JSON."""

    def request(count: int) -> bytes:
        tensors = {"x": np.array([count + 0.5]) * 10.0 ** (count % 7), "z": np.array([-1.5 - count % 9])}
        body = {key: value.replace("N", f"{count}.5") if key == "id" else value for key, value in fields.items()}
        return post("/v2/models/paired/infer", json.dumps({"inputs": in_json(tensors)} | body).encode())

    return request


def packed(count: int) -> bytes:
    """Return a request whose body has its tensor in plain sight, a few bytes later than it is once inflated."""
    del count  # it would change the checksum too
    body = gzip.compress(np.arange(8.0).tobytes(), compresslevel=0)
    headers = (f"content-type: {OCTETS}", f"{LENGTH}: 0", "content-encoding: gzip")
    return with_head("/v2/models/square/infer", headers, body)


def twice(count: int) -> bytes:
    x = {"x": np.array([count + 0.5])}
    return in_base64("log1pexp", "vjp", {"inputs": x, "cotangents": {"y": x["x"]}}, "float64", "x-tag: twice")


HESSIAN = {"outWrt": 0, "inWrt1": 0, "inWrt2": 0, "sens": [0.5], "vec": [1.5], "config": {"shape": [1]}}
NOT_TAKEN: Mapping[str, Callable[[int], bytes]] = {
    "a number without a list": square('{"inputs":{"x":N}}'),
    "a list with a word": square('{"inputs":{"x":[N,"NaN"]}}'),
    "refused": square('{"inputs":{"x":[N,null]}}'),
    "another dtype": square('{"inputs":{"x":[N]},"dtype":"float16"}'),
    "a third dtype": square('{"inputs":{"x":[N]},"dtype":"bfloat16"}'),
    "a batch": square('{"inputs":{"x":[0.5]},"cotangents":{"y":[[N],[1.5]]},"batched":true}'),
    "a long skeleton": square('{"inputs":{"x":[N]}' + " " * 4200 + "}"),
    "a list in a string": paired(id="a [N] b"),
    "a part in JSON": paired(outputs=[{"name": "p", "parameters": {"binary_data": True}}, {"name": "q"}]),
    "compressed": packed,
    "base64 twice": twice,
    "steps": lambda count: post("/v1/ops/square/jacobian", b'{"inputs":{"x":[%d.5]}}' % count),
    "directions of a row": lambda count: post(
        "/v1/ops/safe_norm/jvp",
        b'{"inputs":{"x":[%d.5,1.5]},"tangents":{"x":[[0.5,1.0],[1.5,2.0]]},"batched":true}' % count,
    ),
    "bools in the response": lambda count: post("/v1/ops/negative/forward", b'{"inputs":{"x":[%d.5,-1.5]}}' % count),
    "zeros for an absent derivative": lambda count: post(
        "/ApplyHessian",
        json.dumps(HESSIAN | {"name": "paired", "outWrt": 1, "input": [[count + 0.5], [2.5]]}).encode(),
    ),
    "too many numbers": Loop(in_safetensors, "vjp", "square", "float64", (SHARED + 1,)).request,
    "a long response": Loop(lists, "forward", "square", "float64", (11_000,)).request,
}


@pytest.mark.parametrize("case", NOT_TAKEN)
def test_what_is_not_taken(both: Both, case: str):
    with both.takes(0, 0):
        both.repeat(NOT_TAKEN[case])


@pytest.mark.parametrize("operation", ["vjp", "gradients", "jvp", "hvp", "jacobian", "hessian", "check"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.thorough) for name in LOOPS])
def test_all_operations_of_all_loops(both: Both, name: str, operation: str):
    loop = LOOPS[name]
    body = json.dumps({"inputs": {"x": [0.5, 1.5]}, "attrs": dict(loop.fields.get("attrs", {}))})
    both.repeat(lambda count: post(f"/v1/ops/{loop.op}/{operation}", body.replace("0.5", f"{count}.5").encode()))


@pytest.mark.parametrize(
    ("dtype", "shape", "texts"),
    [
        ("float64", [1], ("AAAAAAAA8A==", "AAAAAAAA8D8*", "AAAAAAA=8D8=", "AAAAAAA=====", "AAAAAAAA8D_=")),
        ("uint8", [8], ("AAECAwQFBgcI", "AAECAwQFBg==")),
    ],
)
def test_base64_of_one_length(both: Both, dtype: str, shape: list[int], texts: tuple[str, ...]):
    """None of the texts has the bytes of the shape."""

    def request(text: str) -> bytes:
        tensor = {"dtype": dtype, "shape": shape, "base64": text}
        body = json.dumps({"inputs": {"x": tensor}, "dtype": dtype}).encode()
        return post("/v1/ops/square/forward", body, JSON, "x-tag: base64")

    both.warm(lambda count: request(base64.b64encode(np.full(shape, count + 1, dtype).tobytes()).decode()))
    assert [both.same(request(text))[0].status for text in texts] == [422] * len(texts)


def test_bodies_of_one_length_and_other_names(both: Both):
    """They differ in an attribute, in the order of the names, or in a name: each has another template."""

    def request(count: int, names: str, a: float, form: Any) -> bytes:
        tensors = {name: np.random.default_rng(count + ord(name)).uniform(-3, 3, 3) for name in names}
        return form("paired", "forward", {"inputs": tensors}, "float64", "x-tag: names", attrs={"a": a})

    for form in (in_safetensors, lists):
        both.warm(lambda count, form=form: request(count, "xz", 0.5, form))
        for count in range(8):
            bodies = [("xz", 2.5), ("xz", 0.5), ("zx", 0.5), ("xy", 0.5)]
            answers = both.same(*(request(count, names, a, form) for names, a in bodies))
            assert [answer.status for answer in answers] == [200, 200, 200, 422]
            assert answers[0].body != answers[1].body


LABELS = ("2", "0.0", "-0", "1e0", "20e-1", "3", "-1", "1.5", "1e300", "2147483648", "18446744073709551616", "null")


def test_labels_as_the_general_path_reads_them(both: Both):
    """Whole numbers in any form; what is none, or out of range, is refused in the same words."""
    form = '{"inputs": {"logits": [[0.5, N, -2.5], [0.25, 0.5, 0.75]], "labels": [LABEL, 0]}}'

    def request(count: int, label: str = "1") -> bytes:
        body = form.replace("N", f"{count}.5").replace("LABEL", label)
        return post("/v1/ops/softmax_cross_entropy/vjp", body.encode())

    both.warm(request)
    for label in LABELS:
        (answer,) = both.same(request(1, label))
        assert answer.status == (200 if label in LABELS[:5] else 422)
    with both.takes(SHARE - 1):
        both.same(*map(request, range(SHARE)))


def test_values_that_an_op_refuses(both: Both):
    """Its own check sees each request; those beside it are answered."""
    loop = Loop(in_safetensors, "vjp", "self_adjoint_eig", names=None)
    check_taken(both, loop)
    wrong = loop.request(0, lambda _, shape: np.full(shape, np.nan))
    assert both.same(wrong)[0].status == 422
    check_turns(both, [[wrong if number % 5 == 3 else loop.request(number) for number in range(20)]])


def test_equal_bytes_of_another_shape(both: Both):
    """Rows of another shape, and shared inputs of another shape, share no call."""

    def rows(count: int, shape: tuple[int, ...]) -> bytes:
        x = np.random.default_rng(count).uniform(-3, 3, 6).reshape(shape)
        return typed("safe_norm", "vjp", {"inputs": {"x": x}}, "float64", "x-tag: rows")

    def filters(count: int, shape: tuple[int, ...]) -> bytes:
        x, f = np.random.default_rng(count).uniform(-3, 3, (1, 3, 3, 1)), np.array([1.5, -2.5, 0.5, 1.25])
        return lists("conv_eig", "vjp", {"inputs": {"x": x, "f": f.reshape(shape)}}, "float32", "x-tag: filters")

    for form, shapes in ((rows, ((2, 3), (3, 2), (1, 6))), (filters, ((2, 1, 1, 2), (1, 2, 1, 2)))):
        for shape in shapes:
            both.warm(lambda count, form=form, shape=shape: form(count, shape))
        check_turns(both, [[form(number, shapes[number % len(shapes)]) for number in range(16)]])


def test_shared_inputs_of_other_bytes_share_no_call(both: Both):
    """Requests that arrive together, each with different features."""

    def request(count: int) -> bytes:
        tensors = {"features": FEATURES * (count + 0.5), "rois": np.array([[0.0, 0, 0, 2, 2], [0, 1, 1, 2, 1]])}
        attrs = {"pooled_height": 2, "pooled_width": 1}
        narrow = {name: x.astype(np.float32) for name, x in tensors.items()}
        return in_safetensors("roi_pool", "forward", {"inputs": narrow}, "float32", "x-tag: shared", attrs=attrs)

    both.warm(request)
    service, turn = both.services[0], [request(number) for number in range(8)]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(service.port)) for _ in turn]
        service.process.send_signal(signal.SIGSTOP)
        for wire, data in zip(wires, turn, strict=True):
            wire.send(data)
        service.process.send_signal(signal.SIGCONT)
        fast = [wire.answer() for wire in wires]
    assert fast == both.same(*turn)


@pytest.mark.parametrize("size", [400, 1500])
def test_the_requests_of_a_turn_share_calls(both: Both, size: int):
    """The first run of a length compiles, so it is not brief. The numbers of a turn fill one call or more."""
    loop = Loop(lists, "gradients", "square", "float64", (size,))
    both.warm(loop.request)
    for turn in range(PATIENCE):
        taken, batches = both.taken(), both.batches("square", "gradients")
        in_turns(both.services[0].port, [[loop.request(turn * CONNECTIONS + each) for each in range(CONNECTIONS)]])
        taken, batches = both.taken() - taken, both.batches("square", "gradients") - batches
        if taken == CONNECTIONS and batches <= CONNECTIONS // 2:
            return
    pytest.fail(f"the last turn took {batches} calls, and {taken} requests took the fast path")


@pytest.mark.slow
def test_a_loop_whose_requests_always_share_a_batch(both: Both):
    """No request runs alone, so a trial must show how long one takes."""
    loop, before = Loop(lists, "gradients", "log1pexp", "float64", (701,)), both.taken()
    for turn in range(PATIENCE):
        requests = [loop.request(turn * CONNECTIONS + each) for each in range(CONNECTIONS)]
        [fast] = in_turns(both.services[0].port, [requests])
        if both.taken() > before:
            break
    else:
        pytest.fail("the fast path does not take this request")
    assert fast == both.same(*requests)


def test_templates_are_dropped(both: Both):
    """More templates than a head keeps: each is made again when it is needed."""
    tag = f"x-tag: dropped {next(TAGS)}"
    loops = [Loop(lists, "forward", "square", shape=(size,), tag=tag) for size in range(1, 24)]
    for loop in loops:
        both.repeat(loop.request)
    mixed = [loop.request(3) for loop in loops] * 3
    random.Random(1).shuffle(mixed)
    both.same(*mixed)


def test_refused_requests_do_not_delay_the_right_one(both: Both):
    """They differ from it only in a name."""

    def request(name: str, count: int) -> bytes:
        body = json.dumps({"inputs": {name: [0.5 + count, 1.5]}}).encode()
        return post("/v1/ops/square/forward", body, JSON, "x-tag: refused")

    assert {answer.status for answer in both.same(*(request("z", count) for count in range(100)))} == {422}
    assert len(both.warm(lambda count: request("x", count))) < PATIENCE // 4


def test_the_only_connection(two_services):
    """Its requests do not wait for others, which cannot come."""
    found, loop = list[list[Answer]](), Loop(lists, "forward", "square", "float64", (5,))
    for service in two_services:
        with Wire(service.port) as wire:
            answers, before = list[Answer](), metric(wire, TAKEN)
            for count in range(PATIENCE):
                wire.send(loop.request(count))
                answers.append(wire.answer())
            assert metric(wire, TAKEN) - before >= (PATIENCE // 2 if service is two_services[0] else 0)
            found.append(answers)
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [64, 65, 700])
def test_long_rows_that_json_writes_otherwise(both: Both, size: int):
    """A row that holds a number that needs another writer, among rows that do not."""
    loop = Loop(lists, "vjp", "square", shape=(size,))
    both.warm(loop.request)
    for number in (1e30, -1e30, AMBIGUOUS, -AMBIGUOUS):
        edge = [0.5] * (size - 1) + [number]
        rows = {False: np.full(size, 0.5, np.float32), True: np.array(edge, np.float32)}
        turn = [
            lists("square", "vjp", {"inputs": {"x": rows[x]}, "cotangents": {"y": rows[y]}}, "float32", loop.tag)
            for x, y in itertools.product([False, True], repeat=2)
        ]
        check_turns(both, [turn])


@pytest.mark.slow
def test_requests_that_cannot_share_a_call_stay_off_the_event_loop(two_services):
    """An op that sleeps never gets a template: the service answers others meanwhile."""
    service, stop, slowest = two_services[0], threading.Event(), [0.0]

    def probe() -> None:
        with Wire(service.port) as wire:
            while not stop.is_set():
                began = time.monotonic()
                wire.send(GET % b"/health/live")
                wire.answer()
                slowest[0] = max(slowest[0], time.monotonic() - began)

    thread = threading.Thread(target=probe)
    with Wire(service.port) as wire:
        for number in range(3):
            wire.send(post("/v1/ops/dawdling/forward", b'{"inputs":{"x":[%d.5,1.5]}}' % number))
            wire.answer()
        thread.start()
        began = time.monotonic()
        for number in range(6):
            wire.send(post("/v1/ops/dawdling/forward", b'{"inputs":{"x":[%d.5,1.5]}}' % number))
            assert wire.answer().status == 200
        took = time.monotonic() - began
        stop.set()
        thread.join()
    assert slowest[0] < took / 8, (slowest, took)
