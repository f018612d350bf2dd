"""Send requests to the native API and check the rules that every response keeps."""

import base64
import json
import re
from typing import Any

import httpx
import ml_dtypes
import numpy as np

JSON = {"content-type": "application/json"}
BINARY = "application/vnd.safetensors"
MODES = ("graph", "eager", "xla", "v1")
OPERATIONS = ("forward", "gradients", "vjp", "jvp", "jacobian", "hvp", "hessian")
# Ops that a protocol writes in different ways: by elements, with number attributes, with static ones, of rows with
# integers, of several inputs, of several outputs, without a jvp, with another dtype for outputs, with wide examples.
OF_EACH_KIND = (
    *("square", "gradient_reversal", "surrogate", "softmax_cross_entropy", "concat", "self_adjoint_eig"),
    *("clip_gradient", "cast_float64", "roi_pool"),
)
WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}

MAX_TEXT, MAX_GOT, MAX_ENTRIES = 300, 200, 20
# Clients must never see paths of this machine or names that TensorFlow generates.
# The place in a page that its author must correct: the names of the file and its folder.
PLACE = re.compile(r"; correct [\w.-]+/[\w.-]+\.py(?::\d+)? and start again")
SECRET = re.compile(r"Traceback|File \"|\.py\b|site-packages|/home/|/usr/|/tmp/|/secret|\{\{node|\[\[|\[Op:")


def post(client: httpx.Client, op: str, operation: str, /, **body: Any) -> httpx.Response:
    return client.post(f"/v1/ops/{op}/{operation}", content=json.dumps(body), headers=JSON)


def ask(client: httpx.Client, op: str, operation: str, /, **body: Any) -> dict[str, Any]:
    """Return the response to a valid request."""
    response = post(client, op, operation, **body)
    assert response.status_code == 200, f"{op}/{operation} {body}: {response.text}"
    assert response.headers["content-type"] == "application/json"
    return json.loads(response.content, parse_constant=lambda word: 1 / 0)


def data(tree: Any) -> Any:
    """Return a response with every tensor replaced by its data."""
    if isinstance(tree, dict):
        return tree["data"] if set(tree) == {"dtype", "shape", "data"} else {k: data(v) for k, v in tree.items()}
    return [data(item) for item in tree] if isinstance(tree, list) else tree


def array(tensor: dict[str, Any]) -> np.ndarray:
    """Return a typed tensor of a response as an array."""
    dtype = np.dtype(getattr(ml_dtypes, "bfloat16") if tensor["dtype"] == "bfloat16" else tensor["dtype"])  # noqa: B009
    if "base64" in tensor:
        assert set(tensor) == {"dtype", "shape", "base64"}
        return np.frombuffer(base64.b64decode(tensor["base64"], validate=True), dtype).reshape(tensor["shape"])
    assert set(tensor) == {"dtype", "shape", "data"}
    flat = np.array(tensor["data"], object).reshape(-1)
    return np.array([WORDS.get(x, x) for x in flat], np.float64).astype(dtype).reshape(tensor["shape"])


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the problem document of a response, after checking the rules for all of them."""
    assert response.status_code == status, f"{response.status_code}: {response.text[:1000]}"
    assert response.headers["content-type"] == "application/problem+json"
    document = json.loads(response.content.decode(), parse_constant=lambda word: 1 / 0)
    assert list(document) == ["type", "title", "status", "detail", "instance", "errors"]
    assert document["status"] == status
    assert document["type"].startswith("urn:pullback:problem:")
    assert document["title"]
    assert document["detail"]
    if (path := response.request.url.path).isprintable():
        assert path.startswith(document["instance"].rstrip("…"))
    assert len(document["errors"]) <= MAX_ENTRIES
    for text in (document["detail"], document["instance"]):
        assert len(text) <= MAX_TEXT
        assert text.isprintable()
    for entry in document["errors"]:
        check_entry(entry)
    text = json.dumps({name: document[name] for name in ("detail", "errors")}, ensure_ascii=False)
    assert not SECRET.search(PLACE.sub("", text)), text
    return document


def check_entry(entry: dict[str, Any]) -> None:
    assert list(entry) == ["loc", "message", "expected", "got"]
    for part in entry["loc"]:
        assert type(part) in (str, int)
        assert len(str(part)) <= MAX_GOT
        assert str(part).isprintable()
    for name, limit in (("message", MAX_TEXT), ("expected", MAX_TEXT), ("got", MAX_GOT)):
        assert 0 < len(entry[name]) <= limit, (name, entry)
        assert entry[name].isprintable()


def fault(response: httpx.Response, status: int = 422) -> dict[str, Any]:
    """Return the first error of a problem document."""
    return problem(response, status)["errors"][0]
