"""SIGKILL amid jobs: each has its answer later, once, or has failed; and more jobs than a key may have are refused."""

import json
import os
import random
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.hostile.findings import LOST, STATUS, WRONG
from tests.hostile.stage import Stage
from tests.hostile.target import Target
from tests.patience import PAUSE_S

JOBS, THREADS, KILLS, MOST = 100, 8, 2, 150
ANSWER_S = 120.0
HEADERS = {"content-type": "application/json", "prefer": "respond-async"}


def attack(stage: Stage) -> None:
    """Post jobs while the service is killed, post them again, and look for an answer of each."""
    rng, posted = random.Random(stage.seed), dict[int, str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(THREADS) as threads:
        for run in range(KILLS + 1):
            with Target(f"jobs-{run}", WORKERS="2", DATA=folder, KEY_JOBS=str(MOST)) as target:
                with target.wait_until_ready().service.client() as client:
                    numbers = range(JOBS if run == KILLS else JOBS * (run + 1) // KILLS)
                    posts = [threads.submit(_post, stage, client, number) for number in numbers]
                    if run == KILLS:
                        _find(stage, client, posted, [each.result() for each in posts])
                        continue
                    time.sleep(rng.uniform(0.2, 2.0))
                    for pid in target.pids():
                        os.kill(pid, signal.SIGKILL)
                    for number, each in enumerate(posts):
                        if path := each.result():
                            _same(stage, posted, number, path)
                target.find_log_tracebacks(stage.findings)


def _post(stage: Stage, client: httpx.Client, number: int) -> str:
    """Return the path of the job of a number, "" where the service has ended."""
    content, key = json.dumps({"inputs": {"x": [float(number)]}}), {"idempotency-key": f"job {number}"}
    stage.findings.sent()
    try:
        answer = client.post("/v1/ops/square/vjp", content=content, headers={**HEADERS, **key})
    except httpx.HTTPError:
        return ""
    stage.findings.answered(answer.status_code)
    if answer.status_code != httpx.codes.ACCEPTED:
        stage.findings.fail(STATUS, f"a job: {answer.status_code} {answer.text[:200]}")
        return ""
    return answer.headers["location"]


def _same(stage: Stage, posted: dict[int, str], number: int, path: str) -> None:
    if posted.setdefault(number, path) != path:
        stage.findings.fail(LOST, f"job {number} was {posted[number]}, and is {path}")


def _find(stage: Stage, client: httpx.Client, posted: dict[int, str], paths: list[str]) -> None:
    """Compare the answers of all jobs, then refuse what is too much."""
    for number, path in enumerate(paths):
        _same(stage, posted, number, path)
        until = time.monotonic() + ANSWER_S
        while (state := client.get(f"{path}?wait=10").json())["state"] in ("waiting", "running"):
            if time.monotonic() > until:
                stage.findings.fail(LOST, f"job {number} is {state} after {ANSWER_S:g} s")
                return
            time.sleep(PAUSE_S)
        if state["state"] == "failed" and "the service ended" in state["error"]:
            continue
        answer = client.get(f"{path}/result")
        if state["state"] != "done" or answer.json()["gradients"]["x"]["data"] != [2.0 * number]:
            stage.findings.fail(WRONG, f"job {number} is {state}: {answer.text[:200]}")
        stage.findings.matched()
    long = {"inputs": {"x": [1.0] * 1000}}
    for _ in range(MOST + 1):
        stage.findings.sent()
        answer = client.post("/v1/ops/square/hessian", content=json.dumps(long), headers=HEADERS)
        stage.findings.answered(answer.status_code)
        if answer.status_code not in (httpx.codes.ACCEPTED, httpx.codes.TOO_MANY_REQUESTS):
            stage.findings.fail(STATUS, f"a job too many: {answer.status_code} {answer.text[:200]}")
