"""docs/clients.md: its program in JavaScript gets every answer, also from a service that refuses some requests."""

import json
import re
import subprocess
from typing import Any

import pytest

from tests.conftest import ROOT, Serve, Service
from tests.page_examples import ON_THE_PAGE, node
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

[PROGRAM] = re.findall(r"```js\n(.*?)```", (ROOT / "docs" / "clients.md").read_text(), re.DOTALL)
FUNCTIONS, MAIN = re.split(r"(?m)^(?=const points)", PROGRAM)
# Counts the statuses of the responses, and the most requests that are sent at a time.
COUNTED = """
const seen = { statuses: {}, most: 0 };
let running = 0;
const send = globalThis.fetch;
globalThis.fetch = async (...request) => {
  seen.most = Math.max(seen.most, ++running);
  try {
    const response = await send(...request);
    seen.statuses[response.status] = (seen.statuses[response.status] ?? 0) + 1;
    return response;
  } finally {
    running--;
  }
};
"""


def run(program: str, url: str) -> Any:
    """Run a program with Node.js; return what it prints, as JSON."""
    command = [node(), "--input-type=module", "--eval", program.replace(ON_THE_PAGE, url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("limit", [1, 64])
def test_every_call_is_answered_in_order(service: Service, limit: int) -> None:
    main = MAIN.replace(", 64, ", f", {limit}, ").partition("console.log")[0]
    values = "answers.map((answer) => answer.gradients.x.data)"
    found = run(f"{COUNTED}{FUNCTIONS}{main}console.log(JSON.stringify([{values}, seen]));", service.url)
    assert found == [[2 * x for x in range(1000)], {"statuses": {"200": 1000}, "most": limit}]


def test_every_call_is_answered_by_a_service_that_refuses_some(serve: Serve) -> None:
    """With all calls at once, which are more than may wait."""
    main = MAIN.replace(", 64, ", ", points.length, ").partition("console.log")[0]
    service = serve(QUEUE="64")
    found = run(f"{COUNTED}{FUNCTIONS}{main}console.log(JSON.stringify([answers.length, seen]));", service.url)
    answered, seen = found
    assert (answered, seen["most"]) == (1000, 1000)
    assert seen["statuses"].pop("200") == 1000
    assert set(seen["statuses"]) == {"503"}


def test_a_mistake_ends_the_calls(service: Service) -> None:
    call = '(x) => post("/v1/ops/square/vjp", { inputs: { x: x === 100 ? "one" : x } })'
    items = "Array.from({ length: 1000 }, (_, i) => i)"
    main = f"const failed = await mapBounded({items}, 8, {call}).catch((error) => error.message);"
    message, seen = run(f"{COUNTED}{FUNCTIONS}{main}console.log(JSON.stringify([failed, seen]));", service.url)
    assert "expected a number" in message
    assert seen["statuses"]["422"] == 1
    assert seen["statuses"]["200"] < 200


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_stays_busy_is_an_error(service: Service, status: int) -> None:
    busy = f"""globalThis.fetch = async () =>
      Response.json({{ detail: "busy" }}, {{ status: {status}, headers: {{ "Retry-After": "0" }} }});"""
    main = 'const failed = await post("/", {}).catch((error) => error.message);'
    found = run(f"{busy}{COUNTED}{FUNCTIONS}{main}console.log(JSON.stringify([failed, seen]));", service.url)
    assert found == ["busy", {"statuses": {str(status): 10}, "most": 1}]
