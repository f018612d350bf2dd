"""``pullback new``: every page that it writes passes its checks as it is."""

import pytest

from tests.author.conftest import pullback


def test_the_file_is_new_and_its_name_valid(here, folder) -> None:
    before = (folder / "my_ops" / "cube.py").read_text()
    for arguments, words in {
        ("cube",): "my_ops/cube.py exists",
        ("Cube",): "expected a name of lower-case letters",
        ("../cube",): "expected a name of lower-case letters",
        ("other", "--rows", "--native"): "expected one of --native, --surrogate and --rows",
    }.items():
        refused = here("pullback", "new", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert words in refused.error
    assert (folder / "my_ops" / "cube.py").read_text() == before
    assert not (folder / "my_ops" / "other.py").exists()


@pytest.mark.thorough
def test_every_kind_passes_its_checks(tmp_path) -> None:
    for name, options in (("plain", []), ("straight_1", ["--surrogate"]), ("rows", ["--rows"]), ("x_2", ["--native"])):
        written = pullback(tmp_path, "pullback", "new", name, *options, "--folder", "some ops")
        assert f"pullback check 'some ops/{name}.py'" in written.out, written.error
    assert pullback(tmp_path, "pullback", "native", "some ops").code == 0
    # Once built, a library stays as it is.
    assert pullback(tmp_path, "pullback", "native", "some ops").out == ""
    checked = pullback(tmp_path, "pullback", "check", "some ops", "--dtype", "float32", "--mode", "graph")
    assert checked.code == 0, checked.out + checked.error
    assert checked.out.count(": pass (") == 4
    assert "inconclusive (" not in checked.out
