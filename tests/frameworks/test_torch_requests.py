"""pullback.torch: how many requests, with which credentials, and until when, in graphs and files too."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import pullback
import pullback.torch
from tests.frameworks.conftest import KEY, assert_no_secret, pickles

softplus = torch.nn.functional.softplus
compiled = partial(torch.compile, backend="aot_eager", fullgraph=True)


@pytest.fixture(autouse=True)
def no_compiled_functions() -> None:
    """PyTorch compiles the code of a function at most eight times."""
    torch._dynamo.reset()


class Model(torch.nn.Module):
    """A module that has a remote op."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f, self.linear = f, torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(self.linear(x))


def point(shift: float = 0.0) -> torch.Tensor:
    return torch.tensor([-0.5, 0.25, 2.0]).add(shift).requires_grad_()


def layers(f: Callable[..., Any], count: int, x: torch.Tensor) -> torch.Tensor:
    for i in range(count):
        x = 0.5 * f(x) + 0.1 * i
    return x.sum()


def test_backward_passes_take_no_request(remote, count) -> None:
    f, x = remote("log1pexp"), point()
    y = layers(f, 3, x)
    for _ in range(3):
        y.backward(retain_graph=True)
    assert count() == 3
    torch.autograd.functional.jacobian(f, point(1))
    torch.autograd.functional.hessian(lambda x: f(x).sum(), point(2))
    assert count() == 2


def test_functions_with_different_keys_send_their_own(proxy, monkeypatch) -> None:
    make = partial(pullback.torch.remote, "square", url=proxy.url)
    functions = {key: make(api_key=key) for key in ("one", "two")}
    for key in ("three", "four"):
        monkeypatch.setenv("PULLBACK_KEY", key)
        functions[key] = make()
    monkeypatch.setenv("PULLBACK_KEY", "five")
    for f in [*functions.values()]:
        functions[str(len(functions))] = pickle.loads(pickle.dumps(f))
    keys = ["one", "two", "three", "four", "one", "two", "five", "five"]

    def every(x: torch.Tensor) -> torch.Tensor:
        return sum(f(x) for f in functions.values()).sum()

    for shift, function in enumerate((every, compiled(every))):
        x = point(shift)
        function(x).backward()
        assert_close(x.grad, 16 * x.detach())
        assert set(proxy.new("Authorization")) == {f"Bearer {key}" for key in keys}
    for f, key in zip(functions.values(), keys, strict=True):
        compiled(f)(point(2).detach())
        assert proxy.new("Authorization") == [f"Bearer {key}"]


def test_a_compiled_function_that_gets_another_remote_op_sends_its_key(proxy) -> None:
    make = partial(pullback.torch.remote, "square", url=proxy.url)
    model = Model(make(api_key="one"))
    run = torch.compile(model, backend="aot_eager")
    for key in ("one", "two"):
        model.f = make(api_key=key)
        run(point())
        assert proxy.new("Authorization") == [f"Bearer {key}"]


def members(saved: bytes) -> list[bytes]:
    """Return the contents of a file of PyTorch, which is a ZIP file."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        return [saved, *(content for name in archive.namelist() if (content := archive.read(name)))]


def test_no_secret_is_in_graphs_and_files(secret, proxy) -> None:
    f = pullback.torch.remote("log1pexp", **secret)
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.extend([graph.print_readable(print_output=False), str(graph.graph), repr(graph), graph.code])
        return graph

    model, x = Model(f), point()
    torch.compile(model, backend=backend, fullgraph=True)(x)
    assert "log1pexp" in graphs[0]
    program, file, whole = torch.export.export(model, (x,)), io.BytesIO(), io.BytesIO()
    torch.export.save(program, file)
    torch.save(model, whole)
    assert_no_secret(*graphs, str(program), repr(f), repr(model), *pickles(f), *pickles(model))
    saved = members(file.getvalue())
    assert any(b"log1pexp" in content for content in saved)
    assert_no_secret(*saved, *members(whole.getvalue()))
    assert proxy.new("Authorization") == [f"Bearer {KEY}"]
    # In this process what was saved still has the key.
    file.seek(0)
    whole.seek(0)
    for shift, loaded in enumerate((torch.export.load(file).module(), torch.load(whole, weights_only=False))):
        loaded(x.detach() + 1 + shift)
        assert proxy.new("Authorization") == [f"Bearer {KEY}"]


LOADED = """
import sys, torch
import pullback.torch
program, model, x = sys.argv[1], sys.argv[2], torch.ones(3)
with torch.no_grad():
    torch.export.load(program).module()(x)
    sys.path.insert(0, sys.argv[3])
    torch.load(model, weights_only=False)(x)
"""


def test_what_another_process_loads_has_the_credentials_of_its_environment(secret, proxy, python, tmp_path) -> None:
    f = pullback.torch.remote("log1pexp", **secret)
    torch.export.save(torch.export.export(Model(f), (torch.ones(3),)), tmp_path / "program.pt2")
    torch.save(torch.nn.Sequential(Wrapped(f)), tmp_path / "model.pt")
    proxy.new("Authorization")
    arguments = LOADED, tmp_path / "program.pt2", tmp_path / "model.pt", Path(__file__).parent
    python(*arguments, PULLBACK_KEY="theirs")
    assert proxy.new("Authorization") == ["Bearer theirs"] * 2


class Wrapped(torch.nn.Module):
    """A module that only calls a function."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x)


def test_spawned_workers_evaluate(remote) -> None:
    context = torch.multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        (y,) = pool.map(remote("log1pexp"), [torch.zeros(3)])
    assert_close(y, softplus(torch.zeros(3)))


def test_the_text_in_a_graph_is_json_without_secrets(secret) -> None:
    p = pullback.torch.remote("log1pexp", **secret).p
    text = json.loads(pullback.torch._text(p.vjp))
    assert set(text) == {"name", "url", "attrs", "mode", "timeout", "deadline", "handle", "path"}
    assert pullback.torch._derivative_of(pullback.torch._text(p.vjp)) == p.vjp


def test_value_gradient_and_hessian_product_of_a_composition_take_a_request_each(remote, compose, count) -> None:
    log1pexp, safe_norm, square = map(remote, ("log1pexp", "safe_norm", "square"))
    loss, v = compose(lambda x: log1pexp(safe_norm(square(x)))), torch.tensor([1.0, -2.0, 0.5])
    x = point()
    count()
    found = torch.autograd.functional.hvp(loss, x, v)[1]
    assert count() == 3
    expected = torch.autograd.functional.hvp(lambda x: softplus(torch.linalg.norm(x**2)), x, v)[1]
    assert_close(found, expected)
