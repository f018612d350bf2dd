"""Functions of NumPy and TensorFlow in this process: right ones pass, wrong ones fail, others say what is missing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.cli import main
from pullback.cli.functions import given
from pullback.errors import BadArgument
from pullback.gradcheck.events import TargetOptions, check_targets
from pullback.gradcheck.of.local import Domain, Given
from pullback.gradcheck.targets import server_target
from tests.server_checks import functions
from tests.server_checks.function_reports import failed, report

HERE = "numpy+tests.server_checks.functions:"
SHAPE = Given(shapes={"x": (2, 2)})
X = np.array([[0.5, -1.0, 2.0], [1.5, 1.0, 0.25]])
RIGHT: dict[str, Given] = {
    "layer": Given(),
    "rectified": Given(),
    "squares": Given(),
    "in_dict": Given(),
    "of_kind": Given(),
    "in_list": SHAPE,
    "of_float": SHAPE,
    "itself": SHAPE,
    "only_float32": Given(),
    "only_contiguous": SHAPE,
    "narrow": SHAPE,
    "in_float32": SHAPE,
    "at_knots": Given(),
    "logistic": Given(),
    "of_data": Given(),
    "energy": Given(inputs={"x": np.array([[1, 2]])}),
    "logarithm": Given(shapes={"x": (3,)}, domains={"x": Domain(0.0)}),
}
WRONG: dict[str, tuple[str, str, Given]] = {
    "thrice": ("derivative", "0.9966667 times", SHAPE),
    "kept_sign": ("derivative", "wrong", SHAPE),
    "hvp_twice": ("second", "all are 2 times", SHAPE),
    "halved_in_place": ("mutation", "writes into x", SHAPE),
    "rounded_gradient": ("derivative", "wrong", SHAPE),
    "in_float32_twice": ("derivative", "all are 2", SHAPE),
    "not_linear": ("linearity", "vjp(2a + 3b)", SHAPE),
    "clipped": ("linearity", "2^20", SHAPE),
    "over_dy": ("linearity", "vjp(s a)", SHAPE),
    "wrong_at_one": ("linearity", "vjp(1)", SHAPE),
    "wrong_in_float32": ("dtypes", "dx in float32", Given(shapes={"x": (2, 2)}, dtypes=("float32",))),
    "from_memory": ("layouts", "of strided arrays", SHAPE),
    "block": ("sizes", "with x of shape [67, 67]", SHAPE),
    "one_row": ("sizes", "with x of shape [1, 3]", Given(inputs={"x": X})),
    "of_base": ("layouts", "of broadcast arrays", SHAPE),
    "drifting": ("determinism", "the second evaluation", SHAPE),
    "transposed": ("derivative", "dx", Given()),
    "twice_of_data": ("derivative", "all are 2 times", Given()),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name: str, seed: int) -> None:
    found = report(HERE + name, RIGHT[name], seed=seed)
    assert found.verdict == "pass", [check.sentence for check in found.checks if check.verdict != "pass"]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_fails(name: str, seed: int) -> None:
    check, words, arguments = WRONG[name]
    wrong = failed(report(HERE + name, arguments, seed=seed))
    assert words in wrong.get(check, ""), wrong


@pytest.mark.parametrize(
    ("target", "arguments", "words"),
    [
        ("numpy+tests.server_checks.functions", Given(), "expected numpy+MODULE:FUNCTION"),
        ("numpy+tests.no_such:f", Given(), "cannot import tests.no_such: ModuleNotFoundError"),
        (HERE + "no_such", Given(), "has no no_such; expected one of"),
        (HERE + "CALLS", Given(), "expected a function"),
        (HERE + "no_gradient", SHAPE, "expected a gradient: no_gradient_vjp, no_gradient_grad"),
        (HERE + "nothing", SHAPE, "expected a result with floats, got none"),
        (HERE + "whole", SHAPE, "expected a result with floats, got none"),
        (HERE + "of_complex", SHAPE, "expected a result with floats, got none: return an array"),
        (
            HERE + "of_complex",
            Given(inputs={"x": np.array([1j])}),
            "expected an argument with floats, complex ones for PyTorch and JAX alone",
        ),
        (HERE + "not_a_number", SHAPE, "got NaN or an infinity"),
        (HERE + "exiting", SHAPE, "SystemExit: 3, at functions.py:"),
        (HERE + "raising", SHAPE, "ValueError: a matrix is needed, at functions.py:"),
        (HERE + "logarithm", SHAPE, "--domain x=0..inf"),
        (HERE + "thrice", Given(), "--shape x=3, or --input x=[1.5,2.5], or define thrice_inputs()"),
        (HERE + "thrice", Given(shapes={"z": (2,)}), "unknown argument 'z'; expected x"),
        (HERE + "transposed", Given(shapes={"z": (2,)}), "unknown argument 'z'; expected some of x, w"),
        (HERE + "transposed", SHAPE, "missing argument 'w'"),
        (HERE + "thrice", Given(inputs={"x": np.array([True])}), "expected an argument with floats"),
        (
            HERE + "table_row",
            Given(shapes={"w": (2,)}, inputs={"row": np.array([7, 1])}),
            "(row has integers, as an index beside floats: write row=[1.0,2.0] for floats)",
        ),
        (
            HERE + "elementwise",
            Given(shapes={"x": (3,)}),
            "elementwise: expected elementwise_grad to return a Jacobian, of shape [3, 3], got shape [3]; for an "
            "elementwise function, define elementwise_vjp(x, dy): return dy * elementwise_grad(x)",
        ),
        (HERE + "thrice", Given(shapes={"x": (2,)}, vjp="other"), "expected a gradient: other"),
        (
            HERE + "thrice",
            Given(shapes={"x": (2,)}, compiles=True),
            "--mode compile: expected none for a function of NumPy",
        ),
        (HERE + "thrice", Given(shapes={"x": (2,)}, dtypes=("bfloat16",)), "--dtype: expected some of float16"),
        ("torch+tests.server_checks.functions:thrice", SHAPE, "No module named 'torch'"),
    ],
)
def test_what_cannot_be_checked_says_what_is_missing(target: str, arguments: Given, words: str) -> None:
    with pytest.raises(BadArgument, match=re.escape(words)):
        report(target, arguments)


def test_a_gradient_with_too_few_results_is_a_finding() -> None:
    found = report(HERE + "two_gradients", Given(shapes={"x": (2,), "w": (2,), "b": (2,)}))
    assert "expected a gradient for each of x, w, b, got 2" in failed(found)["contract"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("only_float32", Given(), "takes no float64: it was checked in float32 alone"),
        ("only_contiguous", SHAPE, "takes no strided arrays: "),
        ("logistic", Given(), "The gradient has no part for x, y: these were constants"),
        ("of_data", Given(), "The gradient has no part for x: these were constants"),
    ],
)
def test_what_a_function_does_not_take_is_told(name: str, arguments: Given, words: str) -> None:
    assert words in report(HERE + name, arguments, checks=["derivative"]).document["scope"]


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("without_gradient", "fail", "expected a gradient in x, got None: return zeros"),
        ("other_shapes", "fail", "expected shape [2, 2], got [1, 2]"),
    ],
)
def test_a_function_that_answers_nonsense_says_so(name: str, verdict: str, words: str) -> None:
    functions.CALLS.count = 0
    [check] = report(HERE + name, SHAPE).checks
    assert check.verdict == verdict
    assert words in check.sentence


def test_a_function_that_never_returns_or_fails_does_not_end_the_checks_of_others() -> None:
    targets = [server_target(HERE + name) for name in ("endless", "raising", "itself")]
    try:
        events = [*check_targets(targets, TargetOptions(given=SHAPE, timeout=0.5, checks=["derivative"]))]
    finally:
        functions.CALLS.count = -1
    assert events[0].unavailable[HERE + "endless"] == (
        "no result within 0.5 s: does it loop for ever, or wait for something? Raise --timeout if it is slow"
    )
    assert "a matrix is needed" in events[0].unavailable[HERE + "raising"]
    assert events[-1].passed == 1


def test_what_a_function_prints_is_not_among_the_reports(monkeypatch: pytest.MonkeyPatch, capsysbinary: Any) -> None:
    arguments = ["check", HERE + "printing", "--shape", "x=2", "--check", "derivative", "--json", "-"]
    monkeypatch.setattr("sys.argv", ["pullback", *arguments])
    assert main() == 0
    printed = capsysbinary.readouterr()
    assert json.loads(printed.out)
    assert b"a line of the user" in printed.err


def test_a_function_that_does_not_return_ends_its_report_alone() -> None:
    [check] = report(HERE + "sleeping", SHAPE, timeout=0.2, checks=["derivative"]).checks
    assert check.verdict == "error"
    assert "no result within 0.2 s" in check.sentence


def test_a_narrower_dtype_is_compared_with_float64() -> None:
    found = report(HERE + "layer", Given(dtypes=("float32", "float16")), checks=["dtypes"])
    assert found.verdict == "pass"
    assert {check.dtype for check in found.checks if check.check == "dtypes"} == {"float32", "float16"}


def test_a_module_that_cannot_be_imported_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unfinished.py").write_text("scale = 2\nshape = scal.shape\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument, match=r"NameError: name 'scal' is not defined.*, at unfinished\.py:2"):
        report("numpy+unfinished:f", SHAPE)


def test_the_command_checks_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    (tmp_path / "mine.py").write_text("def f(x):\n    return x**2\n\ndef f_vjp(x, dy):\n    return 3 * x * dy\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["pullback", "check", "numpy+mine:f", "--input", "x=[1.5,-2]"])
    assert main() == 1
    assert "all are 1.5 times what they should be" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": ["x"]}, "--input: expected NAME=VALUE"),
        ({"shapes": ["x=3", "x=4"]}, "once for each name"),
        ({"shapes": ["x=a"]}, "--shape: expected sizes"),
        ({"domains": ["x=1..0"]}, "--domain: expected LOW..HIGH"),
        ({"domains": ["x=1"]}, "--domain: expected LOW..HIGH"),
        ({"dtypes": ["int8"]}, "--dtype: expected some of float16"),
        ({"modes": ["graph"]}, "--mode: expected compile for a function"),
    ],
)
def test_wrong_options_say_what_was_expected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        given(**{"inputs": None, "shapes": None, "domains": None, "dtypes": None, "vjp": None, **options})


@pytest.mark.parametrize(
    ("shape", "name"), [((3,), ""), *(((2, 3), name) for name in ("in_bfloat16", "in_float32", "dropping"))]
)
def test_a_function_of_tensorflow(shape: tuple[int, ...], name: str) -> None:
    right, wrong = ("right", "wrong") if not name else (name, f"{name}_wrong")
    for each, verdict in {right: "pass", wrong: "fail"}.items():
        found = report(f"tf+tests.server_checks.tensorflow_functions:{each}", Given(shapes={"x": shape}))
        assert found.verdict == verdict, found.sentence
