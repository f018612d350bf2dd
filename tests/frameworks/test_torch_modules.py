"""A remote function is a layer of PyTorch."""

import copy
import pickle
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")


def test_a_remote_function_is_a_module(remote: Any) -> None:
    f, same = (remote("log1pexp") for _ in range(2))
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), f)
    x = torch.ones((2, 3), requires_grad=True)
    y = model(x)
    assert torch.allclose(y, torch.nn.functional.softplus(model[0](x)))
    y.sum().backward()
    assert model[0].weight.grad is not None
    assert set(model.state_dict()) == {"0.weight", "0.bias"}
    assert model.to(torch.float64).eval()(x.double()).dtype == torch.float64
    assert f == same == copy.deepcopy(f) == pickle.loads(pickle.dumps(f))
    assert hash(f) == hash(same)
    assert len({f, same}) == 1
