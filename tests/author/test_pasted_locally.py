"""The commands of findings of local checks run as they are pasted, without a service, and return the number."""

import html
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
"""y = k x² w and z = x³; the gradient of y in w is 3 % too large."""

from ops import Attrs, Example, Input, Op, Output, custom_gradient


class Scale(Attrs):
    k: float = 2.0
    form: str = "a b"


def forward(x, w, *, k, form):
    return k * x * x * w, x * x * x


def vjp(x, w, dy, dz, *, k, form):
    return 2 * k * x * w * dy + 3 * x * x * dz, 1.03 * k * x * x * dy


OP = Op(
    name="scaled",
    summary="k x² w",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    inputs=(Input("x"), Input("w")),
    outputs=(Output("y"), Output("z")),
    attrs=Scale,
    source="a test",
    examples=(Example("one", {"x": [1.0, 2.0], "w": [3.0, 4.0]}, {"k": 3.0}),),
)
'''


FORMS = ("json", "html", "junit")
# The worst number, what it is in the answer, and the command, as they are printed.
FINDING = re.compile(r"analytic (\S+)  \|.*\n.*\n  analytic: (\S+) of\n +(\S.*)\n")


@pytest.mark.thorough
def test_a_pasted_command_returns_the_number(tmp_path: Path) -> None:
    folder = tmp_path / "my ops"
    folder.mkdir()
    # The name of the file is not that of the op.
    (folder / "page.py").write_text(
        PAGE.replace('form: str = "a b"', 'form: Literal["a b"] = "a b"').replace(
            "\nfrom ops", "\nfrom typing import Literal\n\nfrom ops", 1
        )
    )
    options = ("--check", "derivative", "--check", "symmetry", "--dtype", "float64", "--mode", "eager")
    files = [option for form in FORMS for option in (f"--{form}", f"report.{form}")]
    checked = pullback(tmp_path, "pullback", "check", "my ops/page.py", *options, *files, COLUMNS="2000")
    assert checked.code == 1, checked
    found = FINDING.findall(checked.out)
    of_each = {each[2].split(" call scaled ")[1].split()[0]: each for each in found}
    assert of_each.keys() == {"vjp", "hvp"}
    reports = {form: html.unescape((tmp_path / f"report.{form}").read_text()) for form in FORMS}
    reports["json"] = "\n".join(commands_of(json.loads(reports["json"])))
    assert [form for form, text in reports.items() for *_, command in found if command not in text] == []
    # One of each operation.
    for worst, shows, command in of_each.values():
        assert number_of(command, shows, tmp_path) == pytest.approx(float(worst), rel=1e-8)


def commands_of(document: Any) -> list[str]:
    return [check["reproduce"] for report in document["reports"] for check in report["checks"] if check["reproduce"]]


def number_of(command: str, shows: str, folder: Path) -> float:
    """Run a pasted command without a service; return the number in its answer that a finding shows."""
    done = subprocess.run(
        ["bash", "-c", f"{command} --json"],
        cwd=folder,
        env={**ENVIRONMENT, "PULLBACK_URL": "http://127.0.0.1:9", "PULLBACK_KEYS_FILE": "/nowhere"},
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
    return number
