"""The Open Inference Protocol over HTTP: every model matches the native API and refuses invalid requests."""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.routes.openinference.models import models
from ops import Attrs, Example, Input, Op, Output
from tests.http.openinference_client import (
    DATATYPES,
    JSON,
    LENGTH,
    OCTETS,
    ask,
    assert_same,
    binary,
    expect_error,
    in_json,
    infer,
    infer_json,
    post,
    select,
    tensor_heads,
    tensors_of,
)
from tests.http.test_dialects import reference

OPERATIONS = ("forward", "vjp", "jvp", "hvp", "jacobian", "hessian")
OPS = sorted(path.stem for path in (Path(__file__).parents[2] / "ops").glob("[!_]*.py"))
X = np.array([1.5, -2.0, 3.0], np.float32)
ONE = {"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}


def offered_models(client: httpx.Client, op: str) -> list[str]:
    index = client.post("/v2/repository/index").json()
    names = [entry["name"] for entry in index]
    return ["forward" if name == op else name.split(".")[1] for name in names if name.split(".")[0] == op]


def test_only_available_operations_are_offered(client):
    contracts = {op: client.get(f"/v1/ops/{op}").json() for op in OPS}
    for op, contract in contracts.items():
        live = all(any(x["differentiable"] for x in contract[side]) for side in ("inputs", "outputs"))
        found = offered_models(client, op)
        has = [operation for operation in OPERATIONS if (op, operation) != ("clip_gradient", "jvp")]  # not linear
        assert found == (has if live else ["forward"]), op
        for operation in OPERATIONS:
            model = op if operation == "forward" else f"{op}.{operation}"
            assert client.get(f"/v2/models/{model}/ready").status_code == (200 if operation in found else 404)


def an_op(name: str = "made", inputs: str = "x", outputs: str = "y", attrs: type[Attrs] = Attrs) -> Op:
    xs, ys = inputs.split(), outputs.split()
    return Op(
        name=name,
        summary="an op",
        doc="y = x.",
        function=lambda *x, **attrs: x,
        reference=np.asarray,
        inputs=tuple(Input(x) for x in xs),
        outputs=tuple(Output(y) for y in ys),
        mechanism="custom_gradient",
        source="a test",
        attrs=attrs,
        examples=(Example("one", dict.fromkeys(xs, 1.0)),),
    )


class Slow(Attrs):
    timeout: float = 1.0


def test_a_name_that_is_taken_has_its_first_letter_once_more_in_front():
    assert list(models([an_op()])) == ["made", *(f"made.{operation}" for operation in OPERATIONS[1:])]
    clashing = models([an_op(inputs="x dy")])["made.vjp"]  # the cotangent of y would be dy
    assert list(clashing.inputs) == ["x", "dy", "ddy"]
    assert list(clashing.outputs) == ["dx", "dddy"]
    assert list(models([an_op(inputs="x tx")])["made.jvp"].inputs) == ["x", "tx", "ttx", "tttx"]
    assert list(models([an_op(inputs="c b_dc", outputs="a a_db")])["made.jacobian"].outputs) == [
        "da_dc",
        "da_db_dc",
        "dda_db_dc",
        "da_db_db_dc",
    ]


def test_an_op_whose_attribute_is_a_parameter_of_the_protocol_is_not_offered():
    assert not models([an_op(attrs=Slow)])


def test_metadata_and_configuration(client):
    document = client.get("/v2/models/roi_pool.vjp").json()
    assert document["versions"] == ["1"]
    assert document["inputs"][1] == {"name": "rois", "datatype": "FP32", "shape": [-1, 5]}
    assert [x["name"] for x in document["inputs"]] == ["features", "rois", "dpooled"]
    assert [x["name"] for x in document["outputs"]] == ["dfeatures"]
    config = client.get("/v2/models/roi_pool.vjp/config").json()
    assert config["max_batch_size"] == 0
    assert [x["optional"] for x in config["input"]] == [False, False, True]
    assert config["output"] == [{"name": "dfeatures", "data_type": "TYPE_FP32", "dims": [-1, -1, -1, -1]}]
    for path in ("", "/config", "/ready"):
        pages = [client.get(f"/v2/models/square.jacobian{version}{path}") for version in ("", "/versions/1")]
        assert [page.status_code for page in pages] == [200, 200]
        assert pages[0].json() == pages[1].json()
    assert client.get("/v2/models/square.jacobian").json()["outputs"] == [
        {"name": "dy_dx", "datatype": "FP32", "shape": [-1, -1]}
    ]


def test_server_metadata_and_health(client):
    assert set(client.get("/v2").json()) == {"name", "version", "extensions"}
    assert client.get("/v2/").json() == client.get("/v2").json()
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/models/square/ready", "/models/square", "/", ""])
def test_head_has_the_headers_of_get(client, path):
    get, head = client.get(f"/v2{path}"), client.head(f"/v2{path}")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-type", "content-length"):
        assert head.headers[name] == get.headers[name]


def test_the_index_lists_ops_that_do_not_load(plugged):
    index = plugged.post("/v2/repository/index").json()
    [broken] = [entry for entry in index if entry["state"] != "READY"]
    assert (broken["name"], broken["state"]) == ("broken", "UNAVAILABLE")
    assert "nothing_of_this_name" in broken["reason"]
    assert plugged.post("/v2/repository/index", json={"ready": True}).json() == [x for x in index if x != broken]
    expect_error(plugged.get("/v2/models/broken.vjp"), 404, "broken.vjp is unavailable", "nothing_of_this_name")


def test_the_index_limits_the_size_of_its_body(client):
    long = b'{"ready": true%b}' % (b" " * (1 << 16))
    for headers in ({}, {"content-type": "application/json"}):
        expect_error(client.post("/v2/repository/index", content=long, headers=headers), 413, "at most 65536 bytes")
    packed = {"content-encoding": "gzip"}
    expect_error(client.post("/v2/repository/index", content=gzip.compress(long), headers=packed), 413, "decompression")
    few = client.post("/v2/repository/index", content=gzip.compress(b'{"ready": true}'), headers=packed)
    assert few.status_code == 200
    unlabelled = {"content-type": OCTETS}
    expect_error(client.post("/v2/repository/index", content=long, headers=unlabelled), 413, "at most 65536 bytes")


@pytest.mark.parametrize("kind", [OCTETS, "application/x-www-form-urlencoded", "image/png", None])
def test_the_repository_takes_any_content_type(client, kind):
    headers = {} if kind is None else {"content-type": kind}
    index = client.post("/v2/repository/index", content=b'{"ready": true}', headers=headers)
    assert index.status_code == 200
    assert "square.vjp" in {entry["name"] for entry in index.json()}
    load = client.post("/v2/repository/models/square/load", content=b"{}", headers=headers)
    expect_error(load, 404, "cannot be loaded")


def test_a_refused_large_request_runs_nothing(client):
    def executions() -> float:
        own = 'pullback_executions_total{op="round_ste",operation="forward"}'
        return sum(float(line.split()[-1]) for line in client.get("/metrics").text.splitlines() if line.startswith(own))

    before = executions()
    body, headers = binary({"x": np.ones(1 << 16, np.float32)})
    expect_error(post(client, "round_ste", body[:-4], headers), 400)
    assert executions() == before
    assert infer(client, "round_ste", {"x": np.ones(1 << 16, np.float32)})["y"].all()
    assert executions() == before + 1


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_the_response_repeats_id_and_names(client, version):
    response = ask(client, f"square.vjp{version}", inputs=[ONE], id="seven: é", model_name="square.vjp")
    assert response.json() == {
        "id": "seven: é",
        "model_name": "square.vjp",
        "model_version": "1",
        "outputs": [{"name": "dx", "datatype": "FP32", "shape": [3], "data": [2, 4, 6]}],
    }


def test_data_can_be_nested_and_null_fields_are_ignored(client):
    matrix = {**ONE, "shape": [1, 3]}
    for data in ([1, 2, 3], [[1, 2, 3]]):
        response = ask(client, "square", inputs=[{**matrix, "data": data}], id=None, outputs=None, parameters=None)
        assert tensors_of(response, "square")["y"].tolist() == [[1, 4, 9]]
    response = ask(client, "square", inputs=[{**ONE, "shape": [], "data": 3}])
    assert tensors_of(response, "square")["y"] == 9
    empty = {"name": "x", "shape": [0, 2], "datatype": "FP32", "data": None, "parameters": {"binary_data_size": 0}}
    assert tensors_of(ask(client, "square", inputs=[empty]), "square")["y"].shape == (0, 2)


def test_non_finite_numbers_are_words(client):
    response = ask(client, "square", inputs=[{**ONE, "data": ["NaN", "-Infinity", -0.0]}])
    assert response.json()["outputs"][0]["data"] == ["NaN", "Infinity", 0.0]


@pytest.mark.parametrize("name", ["FP16", "BF16", "FP32", "FP64"])
def test_every_float_round_trips_as_json_and_as_bytes(client, name):
    x = np.array([[0.1, -3], [1e-3, 7]]).astype(DATATYPES[name])
    found = infer(client, "square", {"x": x})
    assert found["y"].dtype == x.dtype
    assert_same(infer_json(client, "square", {"x": x}), found)
    assert_same(
        tensors_of(ask(client, "square", inputs=in_json({"x": x}), parameters={"binary_data_output": True}), "square"),
        found,
    )


@st.composite
def points(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], list[str], list[tuple[str, bool | None]], bool]:
    """Draw primals and cotangents, which of them to send in JSON, the selected outputs, and the format of the rest."""
    dtype = DATATYPES[draw(st.sampled_from(["FP16", "BF16", "FP32", "FP64"]))]
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    names = draw(st.permutations(["x", "z", *draw(st.sampled_from([[], ["dy"]]))]))
    tensors = {name: rng.integers(-4, 5, shape).astype(dtype) for name in names}
    in_text = draw(st.lists(st.sampled_from(names), unique=True))
    outputs = draw(st.lists(st.sampled_from(["dx", "dz"]), unique=True, max_size=2))
    wanted = [(name, draw(st.sampled_from([None, True, False]))) for name in outputs]
    return tensors, in_text, wanted, draw(st.booleans())


@settings(max_examples=80, deadline=None)
@given(points())
def test_shapes_dtypes_orders_and_formats_mix(plugged, point):
    tensors, in_text, wanted, is_binary = point
    bytes_of = {name: x for name, x in tensors.items() if name not in in_text}
    texts = {entry["name"]: entry for entry in in_json(select(tensors, in_text))}
    blobs = {entry["name"]: entry for entry in tensor_heads(bytes_of)}
    outputs = [{"name": n} if own is None else {"name": n, "parameters": {"binary_data": own}} for n, own in wanted]
    head = json.dumps(
        {
            "inputs": [(texts | blobs)[name] for name in tensors],
            "outputs": outputs,
            "parameters": {"binary_data_output": is_binary},
        }
    ).encode()
    body = head + b"".join(x.tobytes() for x in bytes_of.values())
    response = post(plugged, "squares.vjp", body, {LENGTH: str(len(head)), "content-type": OCTETS})
    found = tensors_of(response, "squares.vjp")
    x, z, dy = (tensors.get(name, np.ones_like(tensors["x"])) for name in ("x", "z", "dy"))
    expected = {"dx": 2 * dy * x * z * z, "dz": 2 * dy * x * x * z}  # small integers: sums are exact in any order
    assert_same(found, select(expected, [name for name, _ in wanted] or ["dx", "dz"]), bits=False)
    head = response.content[: int(response.headers.get(LENGTH, len(response.content)))]
    answered = {output["name"]: "parameters" in output for output in json.loads(head)["outputs"]}
    assert answered == {name: is_binary if own is None else own for name, own in wanted or [("dx", None), ("dz", None)]}


def test_outputs_select_and_order_blocks(plugged):
    x, z = np.array([1, 2, 3.0], np.float32), np.array([4, 5.0], np.float32)
    every = infer(plugged, "apart.jacobian", {"x": x, "z": z})
    assert list(every) == ["dp_dx", "dp_dz", "dq_dx", "dq_dz"]
    assert every["dp_dx"].tolist() == np.diag(2 * x).tolist()
    assert every["dq_dz"].tolist() == np.tile(np.eye(2), (2, 1)).tolist()
    for name, shape in (("dp_dz", (3, 2)), ("dq_dx", (4, 3))):
        assert every[name].shape == shape
        assert not every[name].any()
    some = infer(plugged, "apart.jacobian", {"x": x, "z": z}, outputs=[{"name": "dq_dz"}, {"name": "dp_dx"}])
    assert_same(some, select(every, ["dq_dz", "dp_dx"]))
    assert infer(plugged, "apart.jvp", {"x": x, "z": z, "tx": x})["tq"].tolist() == [0, 0, 0, 0]
    hessian = infer(plugged, "apart.hessian", {"x": x, "z": z}, outputs=[{"name": "ddz_dx"}, {"name": "ddx_dx"}])
    assert list(hessian) == ["ddz_dx", "ddx_dx"]
    assert (hessian["ddz_dx"].shape, hessian["ddx_dx"].tolist()) == ((2, 3), (2 * np.eye(3)).tolist())


def test_only_selected_outputs_are_computed(start_for_session, plugged):
    """A Jacobian over the element limit is refused; its small block is not."""
    x, z = np.ones(1500, np.float32), np.ones(2, np.float32)
    expect_error(post(plugged, "apart.jacobian", *binary({"x": np.ones(3000, np.float32), "z": z})), 400, "elements")
    found = infer(plugged, "apart.jacobian", {"x": np.ones(3000, np.float32), "z": z}, outputs=[{"name": "dq_dz"}])
    assert found["dq_dz"].shape == (4, 2)
    assert infer(plugged, "apart.vjp", {"x": x, "z": z}, outputs=[{"name": "dz"}])["dz"].tolist() == [2, 2]


@pytest.mark.parametrize("attrs", [{}, {"strength": 3}, {"strength": 0.5}])
def test_attributes_are_parameters(client, attrs):
    found = infer(client, "gradient_reversal.vjp", {"x": X}, parameters=attrs)
    expected = reference(client, "gradient_reversal", "vjp", {"inputs/x": X}, {"attrs": attrs})
    assert_same(found, {"dx": expected["gradients/x"]})
    assert found["dx"].tolist() == [-attrs.get("strength", 1)] * 3


def test_unknown_parameters_of_tensors_and_outputs_are_ignored(client):
    labels = {"content_type": "np", "nope": [{}], "binary_data_nope": 1}
    tensor = {**ONE, "parameters": labels}
    response = ask(client, "square", inputs=[tensor], outputs=[{"name": "y", "parameters": labels}])
    assert tensors_of(response, "square")["y"].tolist() == [1, 4, 9]
    heads = [head | {"parameters": head["parameters"] | labels} for head in tensor_heads({"x": X})]
    document = json.dumps({"inputs": heads}).encode()
    response = post(client, "square", document + X.tobytes(), {LENGTH: str(len(document))})
    assert tensors_of(response, "square")["y"].tolist() == [2.25, 4, 9]


@pytest.mark.parametrize(
    "known",
    [
        {"content_type": "np", "headers": {"trace": "1"}},
        {"sequence_id": 0, "sequence_start": False, "sequence_end": False},
        {"sequence_id": "", "classification": 0},
        {"priority": 0, "timeout": 0, "binary_data_output": False},
    ],
)
def test_known_parameters_of_other_servers_change_nothing(client, known):
    found = infer_json(client, "gradient_reversal.vjp", {"x": X}, parameters={"strength": 3, **known})
    assert found["dx"].tolist() == [-3] * 3


def test_a_request_without_json_is_the_only_input(client):
    def raw(model: str, body: bytes, **headers: str) -> httpx.Response:
        return post(client, model, body, {LENGTH: "0", **headers})

    for x in (X, X[:0], np.arange(100_000, dtype=np.float32)):
        assert_same(tensors_of(raw("square", x.tobytes()), "square"), {"y": x * x})
    packed = raw("square", gzip.compress(X.tobytes()), **{"content-encoding": "gzip", "content-type": OCTETS})
    assert_same(tensors_of(packed, "square"), {"y": X * X})
    assert_same(tensors_of(raw("square.jacobian", X.tobytes()), "square.jacobian"), {"dy_dx": np.diag(2 * X)})
    expect_error(raw("square.vjp", X.tobytes()), 400, "x, dy")
    expect_error(raw("self_adjoint_eig", X.tobytes()), 400, "inputs.a", "at most one -1", "[-1, -1, -1]")


def test_a_large_request_without_json_counts_as_binary(client):
    x = np.ones(9 << 20, np.float32)  # more than the limit of JSON
    assert_same(tensors_of(post(client, "square", x.tobytes(), {LENGTH: "0"}), "square"), {"y": x})


LARGE = np.random.default_rng(1).normal(size=300_001).astype(np.float32)


def test_large_tensors_in_every_format(client):
    expected = {"y": LARGE * LARGE}
    assert_same(infer(client, "square", {"x": LARGE}), expected)
    assert_same(infer_json(client, "square", {"x": LARGE}), expected)
    assert_same(infer(client, "square", {"x": LARGE}, parameters={"binary_data_output": False}), expected)
    found = infer(client, "square.vjp", {"dy": LARGE, "x": LARGE[::-1].copy()})
    assert_same(found, {"dx": 2 * LARGE[::-1] * LARGE})


def bad(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{**ONE, **fields}]}


def parameters(**fields: Any) -> dict[str, Any]:
    return {"inputs": [ONE], "parameters": fields}


def outputs(*items: Any) -> dict[str, Any]:
    return {"inputs": [ONE], "outputs": list(items)}


def classified(count: Any) -> dict[str, Any]:
    return outputs({"name": "y", "parameters": {"classification": count}})


DY = {**ONE, "name": "dy"}
REFUSED = [
    ("square", {}, ("missing input x", "got none")),
    ("square", {"inputs": {"x": [1]}}, ("inputs", "a list", "an object")),
    ("square", {"inputs": [1]}, ("inputs.0", "an object", "got 1")),
    ("square", {"inputs": [None]}, ("inputs.0", "null")),
    ("square", {"inputs": [ONE, ONE]}, ("inputs.x", "duplicate tensor")),
    ("square", {"inputs": [ONE], "nope": 1}, ("nope", "unknown field")),
    ("square", {"inputs": [ONE], "id": 7}, ("id", "a string", "7")),
    ("square", {"inputs": [ONE], "model_name": "sign"}, ("model_name", "expected square", "sign")),
    ("square", bad(name="z"), ("inputs.z", "expected one of x")),
    ("square", bad(name=3), ("expected one of x", "got 3")),
    ("square", bad(nope=1), ("nope", "unknown field")),
    ("square", bad(datatype="FP99"), ("datatype", "FP32, FP64, FP16, BF16", "FP99")),
    ("square", bad(datatype="BYTES"), ("datatype", "BYTES")),
    ("square", bad(datatype="BOOL"), ("inputs.x.datatype", "BOOL")),
    ("square", bad(datatype=None), ("datatype", "null")),
    ("square", bad(shape=None), ("shape", "a list of integers", "null")),
    ("square", bad(shape=[-3]), ("shape.0", "from 0", "-3")),
    ("square", bad(shape=[3.0]), ("shape.0", "3.0")),
    ("square", bad(shape=[True]), ("shape.0", "true")),
    ("square", bad(shape=[1] * 9), ("rank <= 8", "rank 9")),
    ("square", bad(shape=[1 << 31]), ("shape.0", str(1 << 31))),
    ("square", bad(shape=[1 << 30] * 3), ("too large",)),
    ("square", bad(shape=[2]), ("inputs.x.data", "flat list of 2", "[3]")),
    ("square", bad(shape=[3, 1], data=[1, 2]), ("flat list of 3",)),
    ("square", bad(data=[1, None, 3]), ("inputs.x.data.1", "null")),
    ("square", bad(data=[1, "3", 3]), ("inputs.x.data.1", '"3"')),
    ("square", bad(data=[1, 1e300, 3]), ("inputs.x.data.1", "overflows")),
    ("square", bad(data=[1, True, 3]), ("inputs.x.data.1", "true")),
    ("square", bad(data=None), ("data", "binary_data_size", "neither")),
    ("square", bad(parameters={"binary_data_size": 12}), ("both",)),
    ("square", bad(data=None, parameters={"binary_data_size": 12}), ("12 bytes", "got 0")),
    ("square", bad(data=None, parameters={"binary_data_size": 11}), ("12 bytes for shape [3] of FP32", "got 11")),
    ("square", bad(data=None, parameters={"binary_data_size": -12}), ("12 bytes", "-12")),
    ("square", bad(data=None, parameters={"binary_data_size": True}), ("12 bytes", "true")),
    ("square", bad(data=None, parameters={"shared_memory_region": "r"}), ("shared memory is not supported",)),
    ("square", bad(parameters=[1]), ("inputs.x.parameters", "an object")),
    ("square", parameters(nope=1), ("parameters.nope", "unknown parameter", "no names")),
    ("gradient_reversal.vjp", parameters(nope=1), ("parameters.nope", "expected one of strength, mechanism")),
    ("square", parameters(triton_nope=1), ("parameters.triton_nope", "unknown parameter")),
    ("square", parameters(sequence_id=1), ("sequence_id", "sequences are not supported", "or 0", "got 1")),
    ("square", parameters(sequence_id="one"), ("sequence_id", "sequences are not supported")),
    ("square", parameters(sequence_start=True), ("sequence_start", "sequences are not supported", "got true")),
    ("square", parameters(sequence_id=[]), ("sequence_id",)),
    ("square", parameters(priority=-1), ("priority", "-1")),
    ("square", parameters(timeout="1"), ("timeout", "an integer")),
    ("square", parameters(timeout=True), ("timeout", "true")),
    ("square", parameters(binary_data_output=1), ("binary_data_output", "true or false", "got 1")),
    ("square", {"inputs": [ONE], "parameters": []}, ("parameters", "an object")),
    ("square", outputs({"name": "z"}), ("outputs.z", "expected one of y")),
    ("square", outputs({"name": "y"}, {"name": "y"}), ("outputs.y", "duplicate tensor")),
    ("square", outputs({"name": "y", "data": []}), ("data", "unknown field")),
    ("square", classified(2), ("outputs.y.parameters.classification", "classes are not supported", "got 2")),
    ("square", classified("2"), ("classification", "classes are not supported", '"2"')),
    ("square", classified([]), ("classification", "classes are not supported")),
    ("square", parameters(classification=2), ("parameters.classification", "classes are not supported")),
    (
        "square",
        outputs({"name": "y", "parameters": {"shared_memory_region": "r"}}),
        ("shared memory is not supported",),
    ),
    ("square", outputs({"name": "y", "parameters": {"binary_data": "yes"}}), ("binary_data", "true or false")),
    ("square", outputs("y"), ("outputs.0", "an object")),
    ("square.vjp", {"inputs": [ONE, {**DY, "datatype": "FP64"}]}, ("inputs.dy.datatype", "expected FP32", "FP64")),
    ("square.vjp", {"inputs": [ONE, {**DY, "shape": [1, 3]}]}, ("inputs.dy", "expected [3]", "[1, 3]")),
    ("square.vjp", {"inputs": [ONE, {**DY, "data": [1, 2, "x"]}]}, ("inputs.dy.data.2",)),
    ("square.jvp", {"inputs": [ONE]}, ("at least one of tx", "got x")),
    ("square.hvp", {"inputs": [ONE, DY]}, ("at least one of vx",)),
    ("square.vjp", bad(datatype="INT64"), ("inputs.x.datatype", "INT64")),
    ("square.jacobian", {"inputs": [ONE, DY]}, ("inputs.dy", "expected one of x")),
    ("roi_pool", {"inputs": [ONE]}, ("inputs.x", "features, rois")),
    ("clip_gradient.jvp", {"inputs": []}, ("unknown model", "clip_gradient.vjp")),
]


@pytest.mark.parametrize(("model", "body", "parts"), REFUSED)
def test_errors_name_the_expected_value(client, model, body, parts):
    found = client.get(f"/v2/models/{model}").status_code
    expect_error(ask(client, model, **body), 400 if found == 200 else 404, *parts)


BODY, HEADERS = binary({"x": X})
BODIES = [
    (BODY + b"\0", HEADERS, 400, ("12 bytes of tensors", "got 13")),
    (BODY[:-1], HEADERS, 400, ("12 bytes of tensors", "got 11")),
    (BODY, {}, 400, ("not UTF-8",)),
    (BODY, {LENGTH: "-1"}, 400, ("a number of bytes", "-1")),
    (BODY, {LENGTH: "x"}, 400, ("a number of bytes",)),
    (BODY, {LENGTH: str(len(BODY) + 1)}, 400, (f"at least {len(BODY) + 1} bytes", f"got {len(BODY)}")),
    (BODY, {LENGTH: str((32 << 20) + 1)}, 413, ("at most", "JSON")),
    (BODY, {LENGTH: "9" * 30}, 413, ("at most",)),
    (bytes(5), {LENGTH: "0"}, 400, ("inputs.x", "FP32", "got 5 bytes")),
    (BODY, {LENGTH: str(int(HEADERS[LENGTH]) - 1)}, 400, ("JSON",)),
    (BODY, {"content-type": OCTETS}, 400, ("not UTF-8",)),
    (
        BODY,
        {**HEADERS, "content-type": "text/plain"},
        415,
        ("application/json or application/octet-stream", "text/plain"),
    ),
    (b"", {}, 400, ("empty",)),
    (b"[]", {}, 400, ("an object",)),
    (b"null", {}, 400, ("an object",)),
    (b'{"inputs":[{"name":"x","name":"x"}]}', {}, 400, ("duplicate key",)),
    (b'{"inputs":[NaN]}', {}, 400, ("NaN",)),
    (b"[" * 200_000, {}, 400, ("brackets",)),
]


@pytest.mark.parametrize(("body", "headers", "status", "parts"), BODIES, ids=range(len(BODIES)))
def test_malformed_bodies_are_refused(client, body, headers, status, parts):
    sentence = expect_error(post(client, "square", body, headers), status)
    for words in parts:
        assert words.lower() in sentence.lower()


def test_without_the_header_of_its_length_the_whole_body_is_json(client):
    """aiohttp labels bodies without a content type as octets."""
    document = json.dumps({"inputs": in_json({"x": X})}).encode()
    for kind in ({}, {"content-type": OCTETS}, {"content-type": f"{JSON}; charset=utf-8"}):
        assert tensors_of(post(client, "square", document, kind), "square")["y"].tolist() == [2.25, 4, 9]


def test_content_types_of_the_protocol_are_accepted(client):
    for kind in ({}, {"content-type": OCTETS}, {"content-type": f"{JSON}; charset=utf-8"}):
        assert tensors_of(post(client, "square", BODY, {**HEADERS, **kind}), "square")["y"].tolist() == [2.25, 4, 9]


@pytest.mark.parametrize(
    ("method", "path", "status", "part"),
    [
        ("GET", "/v2/models/square/infer", 405, "expected POST"),
        ("POST", "/v2/models/square", 405, "expected GET"),
        ("DELETE", "/v2", 405, "expected GET"),
        ("GET", "/v2/repository/index", 405, "expected POST"),
        ("GET", "/v2//", 404, "unknown path"),
        ("HEAD", "/v2/nope", 404, ""),
        ("HEAD", "/v2/models/square/infer", 405, ""),
        ("HEAD", "/v2/repository/index", 405, ""),
        ("GET", "/v2/nope", 404, "unknown path"),
        ("GET", "/v2/models/square/nope", 404, "unknown path"),
        ("GET", "/v2/models/squar", 404, "square"),
        ("POST", "/v2/models/squar/infer", 404, "square"),
        ("GET", "/v2/models/square.nope/config", 404, "square"),
        ("GET", "/v2/models/square/versions/2", 404, "expected version 1"),
        ("POST", "/v2/models/square/versions/0/infer", 404, "expected version 1"),
        ("POST", "/v2/repository/models/square/load", 404, "cannot be loaded"),
        ("POST", "/v2/repository/models/square/unload", 404, "cannot be loaded"),
        ("POST", "/v2/trace/setting", 404, "tracing is not supported"),
        ("GET", "/v2/models/square/trace/setting", 404, "tracing is not supported"),
        ("GET", "/v2/models/square/versions/1/trace/setting", 404, "tracing is not supported"),
        ("POST", "/v2/logging", 404, "PULLBACK_LOG"),
        ("POST", "/v2/systemsharedmemory/region/r/register", 404, "shared memory is not supported"),
        ("GET", "/v2/cudasharedmemory/region/r/status", 404, "shared memory is not supported"),
    ],
)
def test_unknown_models_versions_and_paths_are_refused(client, method, path, status, part):
    response = client.request(method, path)
    if method == "HEAD":
        assert (response.status_code, response.content) == (status, b"")
    else:
        expect_error(response, status, part)


def test_shared_memory_lists_are_empty(client):
    for kind in ("system", "cuda"):
        assert client.get(f"/v2/{kind}sharedmemory/status").json() == []
        assert client.post(f"/v2/{kind}sharedmemory/unregister").status_code == 200
        assert client.post(f"/v2/{kind}sharedmemory/region/r/unregister").status_code == 200


@pytest.mark.parametrize("body", [b"[]", b'{"nope": true}', b'{"ready": 1}', b"{"])
def test_the_index_refuses_invalid_bodies(client, body):
    expect_error(client.post("/v2/repository/index", content=body), 400)


def test_errors_of_an_op_name_the_op(plugged):
    expect_error(post(plugged, "bare_many.vjp", *binary({"x": X})), 500, "bare_many")


def test_a_timeout_in_microseconds_ends_slow_work(plugged):
    x = np.array(1, np.float32)
    assert infer(plugged, "square", {"x": x}, parameters={"timeout": 0, "priority": 3})["y"] == 1
    for form in (binary, lambda tensors, **more: (json.dumps({"inputs": in_json(tensors), **more}).encode(), {})):
        expect_error(post(plugged, "sleepy", *form({"x": x}, parameters={"timeout": 100_000})), 504, "deadline")


def test_without_the_protocol_its_paths_are_404(serve):
    with serve(PROTOCOLS="umbridge", METRICS="1").client() as client:
        for path in ("/v2", "/v2/models/square"):
            response = client.get(path)
            assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")


def test_bool_bytes_other_than_0_and_1_are_refused(plugged):
    tensors = {"x": np.float32([[1, 2], [3, 4]]), "mask": np.array([[True, False], [False, True]])}
    body, headers = binary(tensors)
    assert infer(plugged, "masked", tensors)["y"].tolist() == [[1, 0], [0, 4]]
    response = post(plugged, "masked", body[:-2] + b"\2\1", headers)
    expect_error(response, 400, "inputs.mask.1.0: invalid bool byte; expected 0 or 1, got 2")
    inputs = [{"name": "mask", "shape": [1], "datatype": "BOOL", "data": [1]}, {**ONE, "shape": [1], "data": [1]}]
    expect_error(ask(plugged, "masked", inputs=inputs), 400, "expected true or false, got 1")
