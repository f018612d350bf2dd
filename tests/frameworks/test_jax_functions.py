"""``pullback check jax+MODULE:FUNCTION``: right functions pass, wrong ones fail."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util

from pullback.errors import BadArgument
from pullback.gradcheck import WrongGradient
from pullback.jax import check_grads
from tests.frameworks import functions_of_jax
from tests.server_checks.function_reports import failed, report, verdicts_of_docs

HERE = "jax+tests.frameworks.functions_of_jax:"
RIGHT = (
    *("network", "scanned", "power", "untraceable", "with_rule", "spectrum", "square", "in_bfloat16"),
    *("attended", "gathered", "solved", "rectified"),
)
WRONG = {
    "wrong_rule": ("derivative", "1.001 times"),
    "wrong_tangent": ("derivative", "1.001 times"),
    "halved": ("derivative", "wrong"),
    "looped": ("contract", "Reverse-mode differentiation does not work"),
    "other_when_compiled": ("modes", "y in mode eager"),
    "other_inside": ("modes", "y in mode eager"),
    "with_conjugate": ("derivative", "the sign is flipped"),
    "wrong_in_bfloat16": ("dtypes", "dx in bfloat16"),
    "of_block": ("sizes", "with x of shape [67]"),
    "detached": ("derivative", "wrong"),
    "nan_below_zero": ("derivative", "is nan"),
    "clipped": ("linearity", "vjp(2a + 3b)"),
}


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RIGHT, *WRONG):
        if not hasattr(functions_of_jax, f"{name}_inputs"):
            monkeypatch.setattr(functions_of_jax, f"{name}_inputs", functions_of_jax.inputs, raising=False)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name: str) -> None:
    found = report(HERE + name)
    assert found.verdict == "pass", [check.sentence for check in found.checks if check.verdict != "pass"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_fails(name: str) -> None:
    check, words = WRONG[name]
    wrong = failed(report(HERE + name))
    assert words in wrong.get(check, ""), wrong


def test_the_docs_say_what_jax_says() -> None:
    theirs, ours = verdicts_of_docs("jax.test_util.check_grads")
    assert ours == {**dict.fromkeys(RIGHT, "pass"), **dict.fromkeys(WRONG, "fail")}
    assert {name: says(name) for name in theirs} == theirs


def says(name: str) -> str:
    """Return what JAX's own check_grads says of a function, of order 2, in float64, in the modes that it has."""
    function, made = getattr(functions_of_jax, name), getattr(functions_of_jax, f"{name}_inputs")()
    made = tuple(made.values()) if isinstance(made, dict) else made if isinstance(made, tuple) else (made,)
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda x: np.asarray(x, np.promote_types(x.dtype, np.float64)), made[: 1 if name == "power" else None]
        )
        constants = made[len(wide) :]
        try:
            test_util.check_grads(lambda *xs: function(*xs, *constants), wide, 2)
        except Exception as error:  # noqa: BLE001 - what it raises is what it says
            if "custom_vjp" not in str(error):
                return "fail"
        try:
            test_util.check_grads(lambda *xs: function(*xs, *constants), wide, 2, modes="rev")
        except Exception:  # noqa: BLE001
            return "fail"
    return "pass"


def test_what_jax_checks_is_checked_in_its_place() -> None:
    scale = jnp.arange(3.0)
    assert check_grads(lambda x: {"y": jnp.sin(x * scale)}, (functions_of_jax.inputs(),), 2)
    assert check_grads(functions_of_jax.looped, [functions_of_jax.inputs()], 2, modes="fwd")


def test_a_wrong_gradient_raises_a_report_with_the_python_that_shows_it() -> None:
    def function(p, n):
        return [n, functions_of_jax.wrong_rule(p["w"])]

    with pytest.raises(WrongGradient, match=r"all are 1\.001 times") as raised:
        check_grads(function, ({"w": functions_of_jax.inputs()}, 3), 1)
    worst = next(each for each in raised.value.report.checks if each.verdict == "fail")
    with jax.enable_x64(True):
        found = eval(worst.reproduce.split("; ")[-1], {"jax": jax, "jnp": jnp, "function": function})
    weights = json.loads(worst.shows.partition("* ")[2] or "1")
    number = np.sum(np.asarray(found)[worst.worst.index or ...] * weights)
    assert number == pytest.approx(worst.worst.analytic, rel=1e-14)


def test_other_arguments_of_jax_are_accepted() -> None:
    with pytest.warns(UserWarning, match="ignores atol, rtol"), pytest.raises(WrongGradient):
        check_grads(functions_of_jax.wrong_rule, (functions_of_jax.inputs(),), 1, ["rev"], 1.0, 1.0)
    with pytest.raises(BadArgument, match="modes from 'fwd' and 'rev'"):
        check_grads(jnp.sin, (functions_of_jax.inputs(),), 1, "reverse")
