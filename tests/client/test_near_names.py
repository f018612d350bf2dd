"""Names that a misspelt one may mean are near to it, and where none is, no name is suggested."""

import pytest

from app.errors import did_you_mean
from pullback.wording import counted, near_names

NAMES = ("log1pexp", "log1pexp2", "mean", "multiply", "safe_norm", "self_adjoint_eig", "sign", "square", "sum", "vjp")
NEAR = {
    **{"sqare": "square", "sgn": "sign", "log1p": "log1pexp", "mul": "multiply", "norm": "safe_norm"},
    **{"eig": "self_adjoint_eig", "vpj": "vjp", "meam": "mean"},
}


@pytest.mark.parametrize(("name", "meant"), NEAR.items())
def test_a_near_name_comes_first(name: str, meant: str) -> None:
    assert near_names(name, NAMES, 3)[0] == meant
    assert f"did you mean {meant}" in did_you_mean(name, NAMES)


@pytest.mark.parametrize("name", ["nope", "foo", "tanh", "cube", "", "x", "q" * 10_000])
def test_no_name_is_suggested_that_is_not_near(name: str) -> None:
    assert near_names(name, NAMES, 3) == []
    assert "did you mean" not in did_you_mean(name, NAMES)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("chek", "no command 'chek' (did you mean check?)"),
        ("foo", "no command 'foo'; the commands are serve, doctor, ops, show, "),
        ("graph pst", "no command 'pst' (did you mean post?)"),
        ("key foo", "no command 'foo'; the commands are new"),
    ],
)
def test_a_misspelt_command_gets_a_suggestion(run, command: str, words: str) -> None:
    assert run(*command.split()).error.startswith(f"pullback: {words}")


def test_one_has_no_plural() -> None:
    assert [counted(count, "op") for count in (0, 1, 2)] == ["0 ops", "1 op", "2 ops"]
