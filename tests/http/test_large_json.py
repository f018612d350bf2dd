"""Large JSON is read and written one at a time: threads that parse take the interpreter from the event loop."""

import json
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from app.tensors import fast_json, layouts
from tests.threaded_service import ThreadedService

FILES = {fast_json.__file__, layouts.__file__}
BODY = json.dumps({"inputs": {"x": [1.0625] * 300_000}, "encoding": "flat"}).encode()
CLIENTS = 6


def in_json() -> int:
    """Return how many threads read or write JSON at this moment."""
    frames = sys._current_frames().values()  # pyright: ignore[reportPrivateUsage] - it has no public name
    stacks = [traceback.walk_stack(frame) for frame in frames]
    return sum(any(frame.f_code.co_filename in FILES for frame, _ in stack) for stack in stacks)


def test_one_thread_at_a_time_reads_or_writes_large_json():
    one = ThreadedService(MAX_JSON_MB="16")

    def post() -> int:
        with one.client() as client:
            headers = {"content-type": "application/json"}
            return client.post("/v1/ops/square/forward", content=BODY, headers=headers).status_code

    with ThreadPoolExecutor(CLIENTS) as threads:
        posts, most = [threads.submit(post) for _ in range(CLIENTS)], 0
        while not all(each.done() for each in posts):
            most = max(most, in_json())
            time.sleep(1e-3)
        statuses = [each.result() for each in posts]
    one.close()
    assert (statuses, most) == ([200] * CLIENTS, 1)
