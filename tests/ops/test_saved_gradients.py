"""Custom gradients of SavedModels: what TensorFlow's own loader makes of them, in every mode and at both orders."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from app.autodiff import derivatives
from app.autodiff.absent import Absent
from app.autodiff.admission import admit
from app.autodiff.binding import bind
from app.autodiff.derived import variant_of
from app.tensors.json import decode
from ops import MODES, Array, Example, Mode, Op
from tests.ops.cases import DEVICE
from tests.ops.saved_gradients import REFUSED, SIGNATURES, VALUES

# XLA needs to know how often a loop turns.
CASES = [(name, mode) for mode in MODES for name in SIGNATURES if (name, mode) != ("in_a_loop", "xla")]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Array]]:
    """The folder of the SavedModel, and what TensorFlow's loader makes of it."""
    path = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, "-m", "tests.ops.saved_gradients", str(path)], check=True, capture_output=True)
    return path, dict(np.load(path / "expected.npz"))


def op_of(folder: Path, signature: str, inputs: Mapping[str, list[float]]) -> Op:
    examples = (Example("one", inputs),)
    return Op.from_saved_model(folder, name="net", summary="a test", signature=signature, examples=examples)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_saved_gradients_are_those_of_the_loader(
    saved: tuple[Path, Mapping[str, Array]], name: str, mode: Mode
) -> None:
    folder, every = saved
    expected = {key.removeprefix(f"{name}/"): x for key, x in every.items() if key.startswith(f"{name}/")}
    inputs = {letter: VALUES[letter] for letter in SIGNATURES[name][0]}
    op = op_of(folder, name, inputs)
    admit(op)
    at = variant_of(op, dict.fromkeys(inputs))
    point = bind(at, inputs, {}, None, decode, mode=mode, device=DEVICE, max_elements=1 << 20)
    wrt = tuple([slot.name for slot in at.inputs if f"0/{slot.name}" in expected])
    outputs, levels = derivatives.gradients(point, wrt, None, 2).run()
    np.testing.assert_allclose(outputs["y"], expected["y"])
    for order, level in enumerate(levels):
        for each in wrt:
            dx = np.zeros_like(expected[f"1/{each}"]) if isinstance(level[each], Absent) else level[each]
            np.testing.assert_allclose(dx, expected[f"{order}/{each}"], rtol=1e-6, atol=1e-6, err_msg=f"{order} {each}")


@pytest.mark.parametrize("name", REFUSED)
def test_a_gradient_that_no_op_may_have_is_refused(saved: tuple[Path, Mapping[str, Array]], name: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[name][0]):
        op_of(saved[0], name, {letter: VALUES[letter] for letter in "xk"})
