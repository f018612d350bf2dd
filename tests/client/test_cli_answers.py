"""The command line: the catalogue, calls and verdicts, with a service."""

import json

import numpy as np
import pytest

from tests.client.fake_servers import json_response


def test_ops_lists_every_op(ask, api) -> None:
    lines = ask("ops").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [op.name for op in api.ops()]
    assert lines == [line.rstrip() for line in lines]
    assert any("formula, then derivative; not linear" in line for line in lines)


def test_unavailable_ops_have_a_reason(run, fake_server) -> None:
    fields = {"summary": "", "mechanism": "", "claim": None, "available": False}
    listing = json_response({"ops": [{"name": "broken", "reason": "no [bold]such\x1b[31m module", **fields}]})
    assert run("ops", "--url", fake_server(listing).url).out.splitlines()[1].split() == [
        *("broken", "unavailable", "no", "[bold]such�[31m", "module")
    ]


def test_show_prints_the_contract(ask) -> None:
    out = ask("show", "roi_pool").out
    for part in ("Max pooling over regions", "pooled_height  7", "integer >= 1 <= 64", "[R, 5]", "two_regions: "):
        assert part in out


def test_every_example_of_show_is_valid_for_call(ask) -> None:
    lines = ask("show", "surrogate").out.partition("Examples\n")[2].splitlines()
    for line in lines:
        assert ask("call", "surrogate", "forward", *line.partition(": ")[2].split()).code == 0
    assert len(lines) > 3


@pytest.mark.parametrize(
    ("args", "out"),
    [
        (["square", "forward", "x=1,2,-3"], "outputs.y  float32 [3]\n[1. 4. 9.]\n"),
        (["square", "vjp", "x=1,2", "dy=1,10"], "gradients.x  float32 [2]\n[ 2. 40.]\n"),
        (["square", "vjp", "x=1", "--outputs"], "gradients.x  float32 []\n2.\noutputs.y  float32 []\n1.\n"),
        (["square", "jvp", "x=1,3", "tx=1,10", "--dtype", "float64"], "tangents.y  float64 [2]\n[ 2. 60.]\n"),
        (["square", "hvp", "inputs.x=1", "vx=3"], "products.x  float32 []\n6.\n"),
        (["square", "hvp", "x=1", "ddx=3", "cotangents.y=2"], "products.x  float32 []\n12.\n"),
        (["square", "hessian", "x=1,2", "--diagonal"], "diagonal.x  float32 [2]\n[2. 2.]\n"),
        (["sum", "vjp", "x=[[1,2],[3,4]]", "dy=1,5", "--points"], "gradients.x  float32 [2, 2]\n[[1. 1.]\n [5. 5.]]\n"),
        (["square", "jacobian", "x=[1,3]", "--of", "y", "--wrt", "x"], "[[2. 0.]\n [0. 6.]]\n"),
        (["square", "gradients", "x=3", "--order", "3"], "gradients.3.x: none (disconnected)\n"),
        (["scale_gradient", "vjp", "x=1", "scale=-2.5"], "-2.5\n"),
        (["surrogate", "forward", "x=1.7", "forward=round", "--mode", "eager"], "2.\n"),
        (["square", "forward", "x=nan,-inf"], "[nan inf]\n"),
    ],
)
def test_call(ask, args: list[str], out: str) -> None:
    result = ask("call", *args)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(out)


def test_call_reads_and_writes_files(ask, tmp_path) -> None:
    x, out = tmp_path / "x.npy", tmp_path / "out.npz"
    np.save(x, np.array([[1.0, 2.0]]))
    (tmp_path / "dy.json").write_text("[[1, 10]]")
    assert ask("call", "square", "vjp", f"x=@{x}", f"dy=@{tmp_path / 'dy.json'}", "--out", str(out)).out == ""
    with np.load(out) as arrays:
        assert arrays["gradients.x"].dtype == np.float64
        assert arrays["gradients.x"].tolist() == [[2.0, 40.0]]
    printed = json.loads(ask("call", "square", "vjp", f"x=@{x}", "--dtype", "float64", "--json").out)
    assert printed == {"gradients.x": {"dtype": "float64", "shape": [1, 2], "data": [[2.0, 4.0]]}}
    ask("call", "square", "forward", "x=1,nan", "--dtype", "bfloat16", "--out", str(out))
    with np.load(out) as arrays:
        assert arrays["outputs.y"].dtype == np.float32
    printed = json.loads(ask("call", "square", "forward", "x=1,nan", "--dtype", "bfloat16", "--json").out)
    assert printed["outputs.y"] == {"dtype": "bfloat16", "shape": [2], "data": [1.0, "NaN"]}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["call", "sqare", "forward", "x=1"], "unknown op 'sqare'; did you mean square"),
        (["call", "square", "backward", "x=1"], "expected one of forward, gradients"),
        (["call", "square", "frward", "x=1"], "got 'frward' (did you mean forward?)"),
        (["show", "sqare.vjp"], "unknown op 'sqare.vjp'; did you mean square"),
        (["show", "square.vpj"], "did you mean vjp or jvp?"),
        (["verify", "relo", "x=1", "gx=1"], "unknown op 'relo'; did you mean relu"),
        (["check", "square", "sqare"], "unknown op 'sqare'; did you mean square"),
        (["call", "square", "forward", "input.x=1"], "(did you mean inputs.x?)"),
        (["call", "square", "forward", "x=1e400"], "x: expected a magnitude below 1.8e308"),
        (["call", "scale_gradient", "vjp", "x=1", "scale=1e400"], "scale: expected a magnitude below 1.8e308"),
        (["call", "scale_gradient", "vjp", "x=1", "scale=@no.json"], "scale: cannot read no.json"),
        (["call", "square", "gradients", "x=1", "--order", "0"], "order"),
        (["call", "square", "forward", "z=1"], "z: unknown name for square forward; it takes x"),
        (["call", "square", "forward", "dy=1"], "dy: unknown name for square forward"),
        (["call", "scale_gradient", "vjp", "x=1", "scal=2"], "did you mean scale?"),
        (["call", "square", "forward", "x"], "expected NAME=VALUE"),
        (["call", "square", "forward", "x=1", "inputs.x=2"], "duplicate name; set inputs.x only once"),
        (["call", "square", "forward", "x=one"], "expected @file.npy, @file.json, 1,2,3"),
        (["call", "square", "forward", "x=[1,"], "expected @file.npy"),
        (["call", "square", "forward", "x=@nothing.npy"], "cannot read nothing.npy: No such file"),
        (["call", "square", "forward", "x=@pyproject.toml"], "ends in .npy or .json"),
        (["call", "square", "forward", "x=1", "--order", "2"], "--order: expected operation gradients or numeric"),
        (["call", "square", "forward", "x=1", "--mode", "fast"], "mode"),
        (["call", "square", "forward", "x=1", "--out", "/nowhere/x.npz"], "cannot write /nowhere/x.npz"),
        (["call", "square", "jvp", "x=1"], "tangents"),
        (["verify", "square", "x=1"], "expected a gradient, such as gx="),
        (["verify", "square", "x=1", "gx=1,2"], "shape mismatch"),
        (["check", "square", "nothing"], "nothing"),
        (["check", "square", "--check", "luck"], "checks"),
    ],
)
def test_errors_are_one_line(ask, args: list[str], message: str) -> None:
    assert message in ask(*args).error


def test_verify(ask, tmp_path) -> None:
    x, mine = np.linspace(1, 2, 64), tmp_path / "mine.npy"
    np.save(tmp_path / "x.npy", x)
    wrong = 2 * x
    wrong[17] += 0.5
    for gradient, code in ((2 * x, 0), (wrong, 1)):
        np.save(mine, gradient)
        for arguments in ([f"gx=@{mine}"], ["--gradient", f"x=@{mine}"]):
            result = ask("verify", "square", f"x=@{tmp_path / 'x.npy'}", "dy=" + "1," * 64, *arguments)
            assert (result.code, result.err) == (code, "")
    assert result.out.startswith("FAIL square gradient of x\n")
    assert "worst element [17]" in result.out
    assert "rows 16 to 17: 1 wrong" in result.out


def test_a_verdict_as_json_is_the_document_of_the_service(ask, client) -> None:
    for text, gradient, code in (("2,5,nan", [2, 5, "NaN"], 1), ("2,4,6", [2, 4, 6], 0)):
        result = ask("verify", "square", "x=1,2,3", f"gx={text}", "--json")
        assert (result.code, result.err) == (code, "")
        body = {"inputs": {"x": [1, 2, 3]}, "gradients": {"x": gradient}}
        assert json.loads(result.out) == client.post("/v1/ops/square/verify", json=body).json()


def test_one_wrong_row_is_named_alone(ask) -> None:
    assert "\n  row 1: 1 wrong, " in ask("verify", "square", "x=1,2,3", "gx=2,5,6").out


def test_the_catalogue_as_json(ask, client) -> None:
    assert json.loads(ask("ops", "--json").out) == client.get("/v1/ops").json()
    assert json.loads(ask("show", "roi_pool", "--json").out) == client.get("/v1/ops/roi_pool").json()
    assert "unknown op" in ask("show", "nothing", "--json").error
