"""Values of parameters that clients put: every operation answers as if the request sent them among its inputs."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from app.runtime.traces import TRACES
from pullback.keys import line_for
from tests.conftest import Serve, Start
from tests.http.native_client import MODES, array, ask, post, problem
from tests.http.test_keys import bearer
from tests.http.test_parameters import DY, EVERY, OPERATIONS, X
from tests.http.test_variants import assert_near
from tests.patience import PATIENCE_S, PAUSE_S

PATH = "/v1/ops/layered/parameters"
SAFETENSORS = {"content-type": "application/vnd.safetensors"}
CODES = {"float64": "F64", "float32": "F32"}
ALICE, BOB = "pullback_Of-Alice-0123", "pullback_Of-Bob-4567"
# So many requests reach both workers, because each opens another connection.
REQUESTS = 12


def body(values: Mapping[str, np.ndarray], **metadata: str) -> bytes:
    """Return values as safetensors, in the order of the mapping."""
    header, data = dict[str, Any]({"__metadata__": metadata} if metadata else {}), b""
    for name, x in values.items():
        offsets = [len(data), len(data) + x.nbytes]
        header[name] = {"dtype": CODES[x.dtype.name], "shape": list(x.shape), "data_offsets": offsets}
        data += x.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def values(seed: int) -> dict[str, np.ndarray]:
    """Return one of many sets."""
    rng = np.random.default_rng(seed)
    return {"w": rng.uniform(-1, 1, (3, 2)), "b": rng.uniform(-1, 1, 2)}


def put(client: httpx.Client, one: Mapping[str, np.ndarray], status: int = 201, **headers: str) -> str:
    """Return the digest of a set that is put."""
    response = client.put(PATH, content=body(one), headers={**SAFETENSORS, **headers})
    assert response.status_code == status, response.text
    return response.json()["digest"]


def sent(one: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: x.tolist() for name, x in one.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sets; its sibling has the page."""
    path = tmp_path_factory.mktemp("put") / "parameters"
    (pages := path.with_name("ops")).mkdir()
    shutil.copy(Path(__file__).with_name("plugins") / "layered.py", pages)
    return path


def settings(folder: Path, **more: str) -> dict[str, str]:
    own = {"OPS_PATH": str(folder.with_name("ops")), "DATA": str(folder.parent), "PARAMETERS_MB": "1"}
    return {**own, **more}


@pytest.fixture(scope="module")
def client(serve_for_module: Serve, folder: Path) -> Iterator[httpx.Client]:
    with serve_for_module(**settings(folder)).client() as one:
        yield one


@pytest.mark.share(3)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_answer_is_that_with_the_values_among_the_inputs(client: httpx.Client, operation: str) -> None:
    sets, more = {seed: values(seed) for seed in (1, 2)}, OPERATIONS[operation]
    digests = {put(client, one, 201 if operation == "forward" else 200): one for one in sets.values()}
    for mode in MODES:
        for _ in range(3):  # then from the fast path
            for digest, one in digests.items():
                found = ask(client, "layered", operation, inputs={"x": X}, parameters=digest, mode=mode, **more)
                expected = ask(client, "layered", operation, inputs={"x": X, **sent(one)}, mode=mode, **more)
                assert_near(found, expected)
            ask(client, "layered", operation, inputs={"x": X}, mode=mode, **more)


def test_digits_are_those_with_the_values_among_the_inputs(client: httpx.Client) -> None:
    one, more = values(3), OPERATIONS["vjp"]
    digest = put(client, one)
    found = ask(client, "layered", "vjp", inputs={"x": X}, parameters=digest, digits=True, **more)
    expected = ask(client, "layered", "vjp", inputs={"x": X, **sent(one)}, digits=True, **more)
    assert found.keys() == expected.keys()
    assert found["uncertainty"] == expected["uncertainty"]
    others = ask(client, "layered", "vjp", inputs={"x": X}, digits=True, **more)["uncertainty"]
    assert others != found["uncertainty"]


def test_a_set_needs_no_trace(client: httpx.Client) -> None:
    ask(client, "layered", "vjp", inputs={"x": X}, wrt=EVERY)
    before = TRACES.made.total()
    for seed in range(10, 14):
        digest = put(client, values(seed))
        ask(client, "layered", "vjp", inputs={"x": X}, wrt=EVERY, parameters=digest)
    assert TRACES.made.total() == before


def test_requests_with_different_sets_share_no_call(client: httpx.Client) -> None:
    rng = np.random.default_rng(0)
    digests = [put(client, values(seed)) for seed in (20, 21, 22)]
    asked = [({"x": rng.uniform(-1, 1, (1, 3)).tolist()}, digests[i % 3]) for i in range(96)]

    def answer(one: tuple[dict[str, Any], str]) -> Any:
        return ask(client, "layered", "vjp", inputs=one[0], wrt=EVERY, parameters=one[1])

    alone = list(map(answer, asked))
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            assert list(pool.map(answer, asked)) == alone
    assert len({json.dumps(one) for one in alone}) == len(alone)


def test_every_way_to_ask(client: httpx.Client) -> None:
    one = values(30)
    digest, own = put(client, one), sent(one)
    inputs = {"x": X, "dy": DY}
    found = ask(client, "layered.vjp", "forward", inputs=inputs, parameters=digest)
    assert_near(found, ask(client, "layered.vjp", "forward", inputs={**inputs, **own}))
    points = ask(client, "layered", "forward", inputs={"x": [X, X]}, points=True, parameters=digest)
    y = np.tanh(np.array(X) @ one["w"] + one["b"])
    np.testing.assert_allclose(array(points["outputs"]["y"]), [y, y], rtol=1e-12)
    made = ask(client, "layered", "linearize", inputs={"x": X}, parameters=digest, wrt=EVERY)
    np.testing.assert_allclose(array(made["outputs"]["y"]), y, rtol=1e-12)
    numeric = ask(client, "layered", "numeric", inputs={"x": X}, wrt=["b"], parameters=digest)["derivatives"]["b"]
    slopes = ask(client, "layered", "vjp", inputs={"x": X}, wrt=["b"], parameters=digest)["gradients"]
    np.testing.assert_allclose(numeric["derivative"], array(slopes["b"]), rtol=1e-6)
    assert (
        ask(client, "layered", "verify", inputs={"x": X}, gradients={"b": slopes["b"]}, parameters=digest)["verdict"]
        == "pass"
    )
    many, once = {"cotangents": {"y": [DY, DY]}, "batched": True}, {"cotangents": {"y": DY}}
    first, second = (
        array(ask(client, "layered", "vjp", inputs={"x": X}, parameters=digest, **each)["gradients"]["x"])
        for each in (many, once)
    )
    np.testing.assert_allclose(first, [second, second], rtol=1e-12)
    assert digest in problem(post(client, "layered", "forward", inputs={"x": X}, parameters="0" * 64), 404)["detail"]


def test_what_was_put_comes_back(client: httpx.Client) -> None:
    one = values(40)
    digest = put(client, one)
    assert put(client, dict(reversed(one.items())), 200) == digest
    assert client.put(PATH, content=body(one, note="x"), headers=SAFETENSORS).json() == {"digest": digest}
    with pullback.Client(str(client.base_url)) as user:
        op = user.op("layered")
        assert op.put_parameters(one) == digest
        for name, x in op.parameters(digest).items():
            np.testing.assert_array_equal(x, one[name])
        assert {*op.parameters(op.contract().parameters_digest or "")} == {"w", "b"}
        y = op.forward(X, parameters=digest).outputs["y"]
        np.testing.assert_allclose(y, np.tanh(np.array(X) @ one["w"] + one["b"]), rtol=1e-12)
    assert ask(client, "layered.vjp", "forward", inputs={"x": X, "dy": DY}, parameters=digest)
    # The page's own set is there without a file.
    own = client.get("/v1/ops/layered").json()["parameters_digest"]
    answer = client.get(f"{PATH}/{own}").raise_for_status()
    assert client.put(PATH, content=answer.content, headers=SAFETENSORS).status_code == 200


BAD: dict[str, tuple[bytes, int, str]] = {
    "shape": (body({**values(0), "b": np.ones(3)}), 422, "parameters.b: another dtype or shape"),
    "dtype": (body({**values(0), "b": np.ones(2, np.float32)}), 422, "parameters.b: another dtype or shape"),
    "missing": (body({"w": np.ones((3, 2))}), 422, "parameters.b: missing parameter"),
    "extra": (body({**values(0), "bb": np.ones(2)}), 422, "parameters.bb: no parameter of op layered"),
    "nan": (body({**values(0), "b": np.array([1, np.nan])}), 422, "parameters.b.1: not a number of a parameter"),
    "infinity": (body({**values(0), "b": np.array([np.inf, 1])}), 422, "parameters.b.0: not a number"),
    "truncated": (body(values(0))[:-1], 400, "expected 64 bytes of data after the header, got 63"),
    "more": (body(values(0)) + b"0", 400, "expected 64 bytes of data after the header (data_offsets), got more"),
    "no header": (b"", 400, "expected the whole of the header, got 0 bytes"),
    "half a header": (body(values(0))[:20], 400, "expected the whole of the header, got 20 bytes"),
    "long header": (b"\xff" * 8 + b"{}", 400, "expected safetensors with a header of at most"),
    "large": (b"\0" * (3 << 20), 413, "expected a body of at most"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_set_leaves_no_file(client: httpx.Client, folder: Path, name: str) -> None:
    content, status, detail = BAD[name]
    before = sorted(folder.iterdir()) if folder.exists() else []
    # One that is sent in chunks is refused for its header before its size is known.
    for sending in (content, iter([content[:9], content[9:]]))[: 1 if name == "large" else 2]:
        refused = problem(client.put(PATH, content=sending, headers=SAFETENSORS), status)
        assert detail in refused["detail"]
    assert (sorted(folder.iterdir()) if folder.exists() else []) == before


def test_what_takes_no_set(client: httpx.Client, serve: Serve, folder: Path) -> None:
    content = body(values(0))
    assert (
        "op square has no parameters"
        in problem(client.put("/v1/ops/square/parameters", content=content, headers=SAFETENSORS), 404)["detail"]
    )
    problem(client.put("/v1/ops/none/parameters", content=content, headers=SAFETENSORS), 404)
    problem(client.put(PATH, content=content, headers={"content-type": "application/json"}), 415)
    problem(client.put(PATH, content=content, headers={**SAFETENSORS, "content-encoding": "gzip"}), 415)
    problem(client.post(PATH, content=content, headers=SAFETENSORS), 405)
    for digest in ("0" * 64, "..%2f..%2fetc%2fpasswd", "A" * 64):
        problem(client.get(f"{PATH}/{digest}"), 404)
    with serve(OPS_PATH=str(folder.with_name("ops"))).client() as other:
        refused = problem(other.put(PATH, content=content, headers=SAFETENSORS), 403)
        assert "PULLBACK_PARAMETERS_MB" in refused["detail"]


def test_a_client_that_leaves_leaves_no_file(client: httpx.Client, folder: Path) -> None:
    before = sorted(folder.iterdir())
    content = body(values(50))

    def half() -> Iterator[bytes]:
        yield content[:-8]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        client.put(PATH, content=half(), headers=SAFETENSORS)
    until = time.monotonic() + PATIENCE_S
    while sorted(folder.iterdir()) != before:
        assert time.monotonic() < until
        time.sleep(PAUSE_S)


@pytest.mark.slow
def test_processes_and_keys_share_sets(start: Start, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{line_for('alice', ALICE)}\n{line_for('bob', BOB)} may=call\n")
    more = {"WORKERS": "2", "KEYS_FILE": str(path), "CHECK_PROCESSES": "1", "JOBS": "1"}
    one, alice = values(60), bearer(ALICE)
    service = start(**settings(folder, **more)).wait_until_ready()
    with service.client() as user:
        digest = put(user, one, **alice)
        problem(user.put(PATH, content=body(one), headers={**SAFETENSORS, **bearer(BOB)}), 403)
        request = {"inputs": {"x": X}, "parameters": digest}
        checked = user.post(
            "/v1/ops/layered/check", json={"parameters": digest, "checks": ["derivative"]}, headers=alice
        )
        assert checked.json()["verdict"] == "pass", checked.text
        job = user.post("/v1/ops/layered/forward", json=request, headers={**alice, "prefer": "respond-async"})
        until = time.monotonic() + PATIENCE_S
        while (result := user.get(f"{job.headers['location']}/result", headers=alice)).status_code != 200:
            assert time.monotonic() < until, result.text
            time.sleep(PAUSE_S)
    answers = {result.text}
    for _ in range(REQUESTS):
        with service.client() as user:
            answers.add(user.post("/v1/ops/layered/forward", json=request, headers=alice).raise_for_status().text)
            # Who knows a digest may use it, but is told those of its own key alone.
            assert user.post("/v1/ops/layered/forward", json=request, headers=bearer(BOB)).text in answers
            unknown = user.post(
                "/v1/ops/layered/forward", json={**request, "parameters": "0" * 64}, headers=bearer(BOB)
            )
            assert digest not in problem(unknown, 404)["detail"]
    assert len(answers) == 1
    service.close()
    again = start(**settings(folder, KEYS_FILE=str(path))).wait_until_ready()
    with again.client() as user:
        assert user.post("/v1/ops/layered/forward", json=request, headers=alice).text in answers
