"""The commands of findings of local checks run as they are pasted, without a service, and return the number."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.author.conftest import pullback
from tests.docs.test_readme import ENVIRONMENT
from tests.patience import PATIENCE_S

PAGE = '''
"""y = k x² w; its gradient in w is 3 % too large."""

from ops import Attrs, Example, Input, Op, Output, custom_gradient


class Scale(Attrs):
    k: float = 2.0
    form: str = "a b"


def forward(x, w, *, k, form):
    return k * x * x * w


def vjp(x, w, dy, *, k, form):
    return 2 * k * x * w * dy, 1.03 * k * x * x * dy


OP = Op(
    name="scaled",
    summary="k x² w",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    inputs=(Input("x"), Input("w")),
    outputs=(Output("y"),),
    attrs=Scale,
    source="a test",
    examples=(Example("one", {"x": [1.0, 2.0], "w": [3.0, 4.0]}, {"k": 3.0}),),
)
'''


# The worst number, what it is in the answer, and the command, as they are printed.
FINDING = re.compile(r"analytic (\S+)  \|.*\n.*\n  analytic: (\S+) of\n +(\S.*)\n")


@pytest.mark.slow
def test_a_pasted_command_returns_the_number(tmp_path: Path) -> None:
    folder = tmp_path / "my ops"
    folder.mkdir()
    # The name of the file is not that of the op.
    (folder / "page.py").write_text(
        PAGE.replace('form: str = "a b"', 'form: Literal["a b"] = "a b"').replace(
            "\nfrom ops", "\nfrom typing import Literal\n\nfrom ops", 1
        )
    )
    options = ("--check", "derivative", "--dtype", "float64", "--mode", "eager")
    checked = pullback(tmp_path, "pullback", "check", "my ops/page.py", *options, COLUMNS="2000")
    assert checked.code == 1, checked
    (worst, shows, command), *_ = FINDING.findall(checked.out)
    # Nobody serves here.
    env = {**ENVIRONMENT, "PULLBACK_URL": "http://127.0.0.1:9", "PULLBACK_KEYS_FILE": "/nowhere"}
    done = subprocess.run(
        ["bash", "-c", f"{command} --json"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, _, index = shows.rstrip("]").partition("[")
    number: Any = json.loads(done.stdout)[name]["data"]
    for i in json.loads(f"[{index}]"):
        number = number[i]
    assert number == pytest.approx(float(worst), rel=1e-8)
