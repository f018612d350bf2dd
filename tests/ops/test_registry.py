"""Discovery of ops: the pages of the package, plug-in folders, and broken files."""

import signal
from pathlib import Path
from typing import Any

import pytest

from ops import Example, Input, Op, Output, RegistryError, discover, square
from tests.ops.cases import Case, answer

PAGE = '''
"""y = x."""
import tensorflow as tf
from ops import Example, Input, Op, Output

OP = Op(name="{name}", summary="the identity", doc=__doc__, function=tf.identity, reference=lambda x: x,
        inputs=(Input("x"),), outputs=(Output("y"),), mechanism="stop_gradient", source="", batching="elementwise",
        examples=(Example("one", {{"x": [1.0]}}),))
'''


def plug_in(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for stem, source in files.items():
        (folder / f"{stem}.py").write_text(source)
    return folder


def test_every_page_is_registered_in_order_of_name() -> None:
    pages = {path.stem for path in Path("ops").resolve().glob("[!_]*.py")}
    registry = discover()
    assert set(registry.ops) == pages
    assert list(registry.ops) == sorted(registry.ops)
    assert all(op.name == name for name, op in registry.ops.items())
    assert registry.unavailable == ()


def test_discovery_twice_finds_the_same_ops() -> None:
    assert dict(discover().ops) == dict(discover().ops)


def test_a_plug_in_is_an_op_like_any_other(tmp_path: Path) -> None:
    registry = discover([plug_in(tmp_path, same=PAGE.format(name="same_again"), _hidden="1 / 0")])
    op = registry.ops["same_again"]
    assert registry.unavailable == ()
    assert answer(Case(op, op.examples[0]).point(), "forward", {})["outputs/y"] == 1.0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "SyntaxError: "),
        ("X = 1", "TypeError: no OP is defined"),
        (
            "raise ValueError('see https://example.org/a/b_c, in m/s; not /home/me/x.py')",
            "ValueError: see https://example.org/a/b_c, in m/s; not x.py",
        ),
        ("OP = 3", "TypeError: expected OP = Op(...), got int"),
        (PAGE.format(name="Not A Name"), "ValueError: op 'Not A Name': expected names like"),
        (PAGE.format(name="a").replace('Input("x")', 'Input("x", shape=("N",))'), "ValueError: op 'a': an elementwise"),
        (PAGE.format(name="a").replace('Input("x")', 'Input("x", ("bool",))'), "ValueError: input 'x': expected bool"),
        (
            PAGE.format(name="a").replace('"x")', '"x", ("bool", "float32"), differentiable=False)'),
            "ValueError: input 'x': expected bool alone",
        ),
        (
            PAGE.format(name="a")
            .replace("import Example", "import Attrs, Example")
            .replace("OP = Op(", "class Scale(Attrs):\n    x: float = 1.0\n\nOP = Op(attrs=Scale, "),
            "ValueError: op 'a': expected an input and an attribute to differ in name, got 'x'",
        ),
    ],
)
def test_a_broken_page_is_unavailable_with_its_error(tmp_path: Path, source: str, reason: str) -> None:
    registry = discover([plug_in(tmp_path, broken=source, sound=PAGE.format(name="sound"))])
    assert "sound" in registry.ops
    (broken,) = registry.unavailable
    assert broken.name == "broken"
    assert broken.reason.startswith(reason)
    assert len(broken.reason) <= 300


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((("bool",), ("float64",)), ("float64",)),
        ((("int32",), ("bool",), ("float32",)), ("float32",)),
        ((("bool",), ("int32", "int64")), ("int32", "int64")),
        ((("float32",), ("int32", "int64")), ("float32",)),
        ((("int32", "int64"), ("float32", "float64")), ("float32", "float64")),
        ((("bool",), ("bool",)), ("bool",)),
    ],
)
def test_the_type_variable_is_bool_only_if_all_dtypes_are(dtypes: Any, expected: Any) -> None:
    first, *inputs = (Input(f"x{i}", one, differentiable=False) for i, one in enumerate(dtypes))
    page: dict[str, Any] = {"summary": "", "doc": "", "function": len, "reference": len, "source": ""}
    example = Example("one", {slot.name: True for slot in (first, *inputs)})
    last = Output("y", dtypes[-1], differentiable=False)
    assert Op("a", **page, inputs=(first, *inputs), outputs=(last,), examples=(example,)).dtypes == expected


def test_a_broken_page_is_loaded_again(tmp_path: Path) -> None:
    folder = plug_in(tmp_path, late="1 / 0")
    assert discover([folder]).unavailable
    plug_in(folder, late=PAGE.format(name="late"))
    assert "late" in discover([folder]).ops


def test_of_two_files_that_define_one_op_the_first_is_served(tmp_path: Path) -> None:
    registry = discover([plug_in(tmp_path, other=PAGE.format(name="square"))])
    assert registry.ops["square"] is square.OP
    (other,) = registry.unavailable
    assert other.name == "other"
    assert "ops/square.py defines the op 'square' too; rename one; correct" in other.reason
    assert f"{tmp_path.name}/other.py" in other.reason


def test_a_broken_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    one, other = plug_in(tmp_path / "one", square="1 / 0", mine="1 / 0"), plug_in(tmp_path / "other", mine="1 / 0")
    registry = discover([one, other])
    assert [broken.name for broken in registry.unavailable] == ["mine", "one/square", "other/mine"]
    assert "square" in registry.ops


def test_a_folder_that_is_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = plug_in(tmp_path / "one", mine=PAGE.format(name="mine"))
    monkeypatch.chdir(tmp_path)
    registry = discover([folder, Path("one"), Path(square.__file__).parent])
    assert "mine" in registry.ops
    assert registry.unavailable == ()


def test_folders_may_share_file_names_but_not_op_names(tmp_path: Path) -> None:
    one = plug_in(tmp_path / "one", mine=PAGE.format(name="first"))
    other = plug_in(tmp_path / "other", mine=PAGE.format(name="second"))
    assert {"first", "second"} <= set(discover([one, other]).ops)
    third = plug_in(tmp_path / "third", mine=PAGE.format(name="first"))
    (again,) = discover([one, third]).unavailable
    assert "one/mine.py defines the op 'first' too" in again.reason
    assert "third/mine.py" in again.reason


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"expected a folder, got .*nowhere"):
        discover([tmp_path / "nowhere"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_page_is_imported_ends_the_start(tmp_path: Path, number: Any) -> None:
    """Python's handlers raise in the page, as the page itself could."""

    def handler(*_: Any):
        raise KeyboardInterrupt

    folder = plug_in(tmp_path, slow=f"import os\nos.kill(os.getpid(), {int(number)})\n")
    before = signal.signal(number, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            discover([folder])
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
