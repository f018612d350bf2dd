"""``umbridge.HTTPModel``: all calls, sizes, configs and errors, against closed forms and the native API.

No package registry has UM-Bridge's clients for C++ and R. In their place, raw requests carry what those clients write
with their JSON libraries, and the same libraries read the answers.
"""

import importlib.util
import json
import math
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import umbridge

EPS = np.finfo(float).eps
X = [0.5, -1.0, 2.0]
SENS, VEC = [1.0, 2.0, 3.0], [1.0, -1.0, 2.0]
CONFIG = {"shape": [3]}


@pytest.fixture(scope="module")
def log1pexp(url):
    return umbridge.HTTPModel(url, "log1pexp")


def near(actual, expected, ulps=8):
    np.testing.assert_allclose(actual, expected, rtol=ulps * EPS)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_every_model_reports_its_calls_and_sizes(url):
    names = umbridge.supported_models(url)
    assert {"log1pexp", "roi_pool", "self_adjoint_eig"} <= set(names)
    for name in names:
        model = umbridge.HTTPModel(url, name)
        assert model.supports_evaluate()
        assert min(model.get_input_sizes() + model.get_output_sizes()) >= 1


def test_the_four_calls(log1pexp):
    assert log1pexp.get_input_sizes(CONFIG) == log1pexp.get_output_sizes(CONFIG) == [3]
    assert log1pexp.supports_gradient()
    assert log1pexp.supports_apply_jacobian()
    assert log1pexp.supports_apply_hessian()
    near(log1pexp([X], CONFIG), [[math.log1p(math.exp(x)) for x in X]])
    near(log1pexp.gradient(0, 0, [X], SENS, CONFIG), [s * sigmoid(x) for x, s in zip(X, SENS, strict=True)])
    near(log1pexp.apply_jacobian(0, 0, [X], VEC, CONFIG), [v * sigmoid(x) for x, v in zip(X, VEC, strict=True)])
    near(
        log1pexp.apply_hessian(0, 0, 0, [X], SENS, VEC, CONFIG),
        [s * v * sigmoid(x) * sigmoid(-x) for x, s, v in zip(X, SENS, VEC, strict=True)],
    )


def test_a_derived_op_is_a_model_with_a_gradient(url):
    """The gradient of the gradient, with respect to x and to the cotangent."""
    model = umbridge.HTTPModel(url, "log1pexp.vjp")
    assert model.get_input_sizes(CONFIG) == [3, 3]
    near(model([X, SENS], CONFIG)[0], [s * sigmoid(x) for x, s in zip(X, SENS, strict=True)])
    near(
        model.gradient(0, 0, [X, SENS], VEC, CONFIG),
        [s * v * sigmoid(x) * sigmoid(-x) for x, s, v in zip(X, SENS, VEC, strict=True)],
    )
    near(model.gradient(0, 1, [X, SENS], VEC, CONFIG), [v * sigmoid(x) for x, v in zip(X, VEC, strict=True)])


def test_a_custom_second_order_is_honoured(url):
    found = umbridge.HTTPModel(url, "log1pexp2").apply_hessian(0, 0, 0, [X], SENS, VEC, CONFIG)
    # 1 - e^x cancels near x = 0: its error is that of e^x.
    expected = [s * v * (1 - math.exp(x)) for x, s, v in zip(X, SENS, VEC, strict=True)]
    np.testing.assert_allclose(found, expected, atol=8 * EPS * math.exp(2) * 6, rtol=0)


def test_a_model_of_several_inputs_and_a_matrix(url, native):
    config = {"shape": {"logits": [2, 3], "labels": [2]}}
    logits, labels = [1.0, 2.0, 3.0, 0.0, 0.5, -0.5], [2, 0]
    model = umbridge.HTTPModel(url, "softmax_cross_entropy")
    assert model.get_input_sizes(config) == [6, 2]
    assert model.get_output_sizes(config) == [2]
    at = {"inputs": {"logits": np.reshape(logits, (2, 3)).tolist(), "labels": labels}, "dtype": "float64"}
    assert model([logits, labels], config) == [
        native("softmax_cross_entropy", "forward", **at)["outputs"]["loss"].tolist()
    ]
    expected = native("softmax_cross_entropy", "vjp", **at, cotangents={"loss": [1, 2]})["gradients"]["logits"]
    assert model.gradient(0, 0, [logits, labels], [1, 2], config) == expected.ravel().tolist()
    with pytest.raises(Exception, match="InvalidInput: inWrt: labels is not differentiable"):
        model.gradient(0, 1, [logits, labels], [1, 2], config)


def test_a_model_of_several_outputs(url):
    model, matrix = umbridge.HTTPModel(url, "self_adjoint_eig"), [2.0, 1.0, 1.0, 2.0]
    config = {"shape": [2, 2]}
    assert model.get_output_sizes(config) == [2, 4]
    values, vectors = model([matrix], config)
    near(values, [1, 3], ulps=16)
    # dλ/dA = v vᵀ.
    v = np.reshape(vectors, (2, 2))[:, 1]
    near(model.gradient(0, 0, [matrix], [0, 1], config), np.outer(v, v).ravel(), ulps=64)


def test_mixed_hessians_multiply_by_rows(url):
    model, at = umbridge.HTTPModel(url, "skewed"), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert model.apply_hessian(0, 0, 0, at, [2], [1, 10, 100]) == [420, 1086, 1752]
    assert model.apply_hessian(0, 0, 1, at, [2], [1, 10, 100]) == [6, 60, 600]
    assert model.apply_hessian(0, 1, 0, at, [2], [1, 10, 100]) == [10, 100, 1000]
    assert model.apply_hessian(0, 1, 1, at, [2], [1, 10, 100]) == [0, 0, 0]


def test_infinities_and_nan_reach_the_client(url):
    found = umbridge.HTTPModel(url, "square")([[1e200, 1.0]], {"shape": [2]})
    assert found == [[math.inf, 1.0]]
    # By its formula, the op's second order is 0 times infinity here.
    poles = umbridge.HTTPModel(url, "log1pexp2").apply_hessian(
        0, 0, 0, [[1e3, 0.0]], [0.0, 1.0], [1.0, 1.0], {"shape": [2]}
    )
    assert math.isnan(poles[0])
    assert poles[1] == 0


def test_attributes_and_dtypes(url):
    model = umbridge.HTTPModel(url, "gradient_reversal")
    config = {"shape": [2], "attrs": {"strength": 0.25}}
    assert model.gradient(0, 0, [[1.0, 2.0]], [1.0, 2.0], config) == [-0.25, -0.5]
    single = umbridge.HTTPModel(url, "log1pexp")([[0.0]], {"shape": [1], "dtype": "float32"})
    assert single == [[float(np.float32(math.log(2)))]]


def test_errors_follow_the_protocol(url, log1pexp):
    with pytest.raises(Exception, match="Model nope not supported by server"):
        umbridge.HTTPModel(url, "nope")
    wrong = {
        "InvalidInput: input.0: length mismatch for vector x": lambda: log1pexp([[1.0]], CONFIG),
        "InvalidInput: input: expected a list of 1 lists of numbers": lambda: log1pexp([X, X], CONFIG),
        "InvalidInput: sens: length mismatch for vector y": lambda: log1pexp.gradient(0, 0, [X], [1.0], CONFIG),
        "InvalidInput: vec: length mismatch for vector x": lambda: log1pexp.apply_jacobian(0, 0, [X], [1.0], CONFIG),
        "InvalidInput: inWrt2: unknown vector": lambda: log1pexp.apply_hessian(0, 0, 1, [X], SENS, VEC, CONFIG),
        "InvalidInput: outWrt: unknown vector": lambda: log1pexp.gradient(1, 0, [X], SENS, CONFIG),
        "InvalidInput: config.shpe: unknown field": lambda: log1pexp([X], {"shpe": [3]}),
    }
    for message, call in wrong.items():
        with pytest.raises(Exception, match=message):
            call()
    with pytest.raises(Exception, match=r"NotAcceptable: output\.0\.1: expected a finite number.*got Infinity"):
        umbridge.HTTPModel(url, "square")([[1.0, 1e200]], {"shape": [2], "nonfinite": "error"})
    clip = umbridge.HTTPModel(url, "clip_gradient")
    assert not clip.supports_apply_jacobian()


def test_shared_memory_is_declined(url):
    model = umbridge.HTTPModel(url, "square", use_shmem=True)
    assert not model.supports_shmem()
    assert model([[3.0]], {"shape": [1]}) == [[9.0]]


def test_an_empty_list_is_an_empty_config(log1pexp):
    for sizes in (log1pexp.get_input_sizes, log1pexp.get_output_sizes):
        assert sizes([]) == sizes({})


def test_the_config_selects_the_form_of_nonfinite_numbers(url):
    square, at = umbridge.HTTPModel(url, "square"), [[1e200, 0.1, "NaN"]]
    assert square(at, {"shape": [3], "nonfinite": "string"}) == [["Infinity", 0.1 * 0.1, "NaN"]]
    assert repr(square(at, {"shape": [3], "nonfinite": "literal"})) == repr([[math.inf, 0.1 * 0.1, math.nan]])


CPP, R = "cpp-httplib/0.11.1", "httr2/1.0.0 r-curl/5.2.0 libcurl/7.88.1"


def post(url, body, agent):
    """Return the body of the response to a raw Evaluate, also that of an error."""
    headers = {"user-agent": agent, "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/Evaluate", body, headers), timeout=60) as response:
            return response.read()
    except urllib.error.HTTPError as error:
        return error.read()


def evaluate(**fields):
    return json.dumps({"name": "square", **fields}).encode()


OVERFLOW = evaluate(input=[[1e200, 0.1]], config={"shape": [2]})


def strict(text):
    """Parse JSON as the libraries of C++ and R do: without NaN and Infinity."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize("config", [[], None, {}, {"attrs": []}], ids=str)
def test_empty_configs_of_r_and_cpp(url, config):
    found = strict(post(url, evaluate(input=[[0.5, 1, 2, 3, 4, 5]], config=config), R))
    assert found == {"output": [[0.25, 1, 4, 9, 16, 25]]}


def test_answers_are_strict_json_for_r_and_cpp(url):
    assert strict(post(url, OVERFLOW, R)) == {"output": [["Infinity", 0.1 * 0.1]]}
    error = strict(post(url, OVERFLOW, CPP))["error"]
    assert error["type"] == "NotAcceptable"
    assert error["message"].startswith("output.0.0: expected a finite number, since JSON has no others, got Infinity")
    asked = evaluate(input=[[1e200, 0.1]], config={"shape": [2], "nonfinite": "string"})
    assert strict(post(url, asked, CPP)) == {"output": [["Infinity", 0.1 * 0.1]]}


def test_null_is_never_read_as_a_number(url):
    body = evaluate(input=[[1.0, None]], config={"shape": [2]})
    assert "input.0.1: expected a number" in (message := strict(post(url, body, CPP))["error"]["message"])
    assert "C++ and MATLAB write all three as null, got null" in message


@pytest.fixture(scope="session")
def cpp(tmp_path_factory):
    """Return the C++ program that writes and reads as umbridge.h does."""
    package = importlib.util.find_spec("nlohmann_json")
    if shutil.which("g++") is None or package is None:
        pytest.skip("needs g++ and the package nlohmann-json")
    program = tmp_path_factory.mktemp("cpp") / "umbridge"
    include = Path(package.submodule_search_locations[0], "include")
    source = Path(__file__).with_name("umbridge.cc")
    subprocess.run(["g++", "-std=c++17", "-O0", f"-I{include}", "-o", program, source], check=True, timeout=300)
    return lambda what, body=b"": subprocess.run([program, what], input=body, capture_output=True, check=True).stdout


def test_the_json_library_of_cpp(url, cpp):
    """nlohmann::json reads no form of infinity, so the error must come from the service; it writes all as null."""
    assert (
        cpp("read", post(url, cpp("write-empty"), CPP))
        == json.dumps([[0.1 * 0.1, 1.0, 1.0, 1.0, 1.0, 1.0]], separators=(",", ":")).encode()
    )
    assert b"input.0: length mismatch" in cpp("read", post(url, cpp("write"), CPP))
    assert b"NotAcceptable: output.0.0: expected a finite number" in cpp("read", post(url, OVERFLOW, CPP))
    assert b"parse error" in cpp("read", post(url, OVERFLOW, ""))
    assert b"must be number, but is string" in cpp("read", post(url, OVERFLOW, R))
    assert b"must be number, but is null" in cpp("read", b'{"output": [[null]]}')
    assert json.loads(cpp("write-nonfinite"))["input"] == [[None, None, None]]
    assert b"InvalidInput: input.0.0: expected a number" in cpp("read", post(url, cpp("write-nonfinite"), CPP))


@pytest.fixture(scope="session")
def r():
    """Return the R program that writes and reads as UM-Bridge's R client does."""
    rscript = shutil.which("Rscript")
    if (
        rscript is None
        or subprocess.run([rscript, "-e", "library(jsonlite)"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs R with the package jsonlite (r-cran-jsonlite)")
    source = Path(__file__).with_name("umbridge.R")

    def run(what, body=b""):
        return subprocess.run([rscript, source, what], input=body, capture_output=True, check=True).stdout.decode()

    return run


def test_the_json_library_of_r(url, r):
    assert '"config":[]' in (body := r("write-empty"))
    assert r("read", post(url, body.encode(), R)).split() == ["0.25", "1", "1", "1", "1", "1"]
    assert r("read", post(url, OVERFLOW, R)).split() == ["Inf", f"{0.1 * 0.1:.17g}"]
    assert '["NaN","Inf","-Inf"]' in (body := r("write-nonfinite"))
    assert r("read", post(url, body.encode(), R)).split() == ["NaN", "Inf", "Inf"]
    with pytest.raises(subprocess.CalledProcessError, match="read"):
        r("read", post(url, OVERFLOW, ""))
