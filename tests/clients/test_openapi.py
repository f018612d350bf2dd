"""``openapi-python-client``: the client that it generates from the OpenAPI document, and its calls."""

import importlib
import math
import subprocess
import sys

import pytest

GENERATE = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]


@pytest.fixture(scope="module")
def generated(url, tmp_path_factory):
    """Generate the client, and return a function that imports its modules."""
    folder = tmp_path_factory.mktemp("generated")
    # Parameters have no other form.
    (folder / "config.yaml").write_text(
        "content_type_overrides: {application/vnd.safetensors: application/octet-stream}"
    )
    places = ["--url", f"{url}/openapi.json", "--output-path", str(folder / "client")]
    places += ["--config", str(folder / "config.yaml")]
    done = subprocess.run([*GENERATE, *places], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for fault in ("will not be generated", "Unable to"):
        assert fault not in done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield lambda name: importlib.import_module(f"client{name}")
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def models(generated):
    return generated(".models")


@pytest.fixture(scope="module")
def call(generated, url):
    """Call an operation of the generated client at the op square."""
    client = generated("").Client(base_url=url)

    def run(operation, body, tag="derivatives"):
        return generated(f".api.{tag}.{operation}").sync(op="square", client=client, body=body)

    return run


def named(model, **tensors):
    return model.from_dict(tensors)


@pytest.mark.parametrize(
    ("x", "dy", "dx"),
    [(3.0, 1.0, 6.0), ([1.0, 2.0], [1.0, -0.5], [2.0, -2.0]), ([[1.0], [3.0]], [[1.0]] * 2, [[2.0], [6.0]])],
)
def test_vjp(call, models, x, dy, dx):
    cotangents = named(models.VjpRequestCotangentsType0, y=dy)
    body = models.VjpRequest(inputs=named(models.VjpRequestInputs, x=x), cotangents=cotangents, outputs=True)
    found = call("vjp", body)
    assert isinstance(found, models.VjpAnswer)
    assert found.gradients["x"].to_dict()["data"] == dx
    assert found.outputs["y"].to_dict()["dtype"] == "float32"


def test_every_operation(call, models):
    directions = {"jvp": "tangents", "hvp": "vectors"}
    for operation in ("forward", "gradients", "vjp", "jvp", "jacobian", "hvp", "hessian"):
        fields = {"inputs": {"x": [1, 2]}}
        if operation in directions:
            fields[directions[operation]] = {"x": [1, 1]}
        model = getattr(models, f"{operation.title()}Request")
        found = call(operation, model.from_dict(fields))
        assert isinstance(found, getattr(models, f"{operation.title()}Answer")), found


def test_typed_tensors_and_nonfinite_numbers(call, models):
    x = {"dtype": "float32", "shape": [2], "data": ["NaN", 2.0]}
    body = models.ForwardRequest(inputs=named(models.ForwardRequestInputs, x=x))
    found = call("forward", body).outputs["y"].to_dict()
    assert found == {"dtype": "float32", "shape": [2], "data": ["NaN", 4.0]}


def test_verify(call, models):
    fields = {"inputs": {"x": [1, 2]}, "gradients": {"x": [2, math.pi]}}
    found = call("verify", models.VerifyRequest.from_dict(fields), tag="checks")
    assert isinstance(found, models.VerifyAnswer)
    assert found.verdict == "fail"


def test_errors(call, models):
    found = call("forward", models.ForwardRequest(inputs=named(models.ForwardRequestInputs, z=1.0)))
    assert isinstance(found, models.Problem)
    assert (found.status, found.errors[0].loc) == (422, ["inputs", "z"])
