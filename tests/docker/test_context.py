"""What the Dockerfile copies is in the context that .dockerignore leaves; no engine is needed."""

import pytest

from tests.conftest import ROOT
from tests.docker.context import copies_of, digest_of, files_of, is_sent, missing, rules_of, sent_files, unused

DOCKERFILE = (ROOT / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text()


def test_all_that_is_copied_is_in_the_context_and_nothing_else() -> None:
    copies, files = copies_of(DOCKERFILE), sent_files(ROOT)
    assert {copy.stage for copy in copies} == {"compiler", "build-cpu", "build-gpu", "cpu", "gpu"}
    assert missing(copies, files) == []
    assert unused(copies, files) == []


@pytest.mark.parametrize(
    ("dockerfile", "ignored", "expected"),
    [
        (DOCKERFILE, IGNORED.replace("!requirements/otel.txt\n", ""), "requirements/otel.txt"),
        (DOCKERFILE, IGNORED.replace("!app\n", ""), "app"),
        (DOCKERFILE, f"{IGNORED}\n**/*.cc\n", "ops/*.cc"),
        (DOCKERFILE.replace("cpu.txt", "cpus.txt"), IGNORED, "requirements/cpus.txt"),
        (DOCKERFILE.replace("COPY ops ops", "COPY --chown=1 ops \\\n   # why\n   extras ./"), IGNORED, "extras"),
    ],
)
def test_a_file_that_the_context_lacks_is_found(dockerfile, ignored, expected) -> None:
    rules = rules_of(ignored)
    lacking = missing(copies_of(dockerfile), [path for path in files_of(ROOT) if is_sent(path, rules)])
    assert {line.partition(": ")[2] for line in lacking} == {expected}


def test_a_file_that_nothing_copies_is_found() -> None:
    rules = rules_of(f"{IGNORED}!requirements/dev.txt\n")
    files = [path for path in files_of(ROOT) if is_sent(path, rules)]
    assert unused(copies_of(DOCKERFILE), files) == ["requirements/dev.txt"]


@pytest.mark.parametrize(
    ("ignored", "path", "expected"),
    [
        ("", "a/b", True),
        ("# a\n\n  a  \n", "a", False),
        ("a", "a/b/c", False),
        ("a", "b/a", True),
        ("/a/", "a/b", False),
        ("./a/../b", "b", False),
        ("*", "a/b", False),
        ("*.c", "a.c", False),
        ("*.c", "a/a.c", True),
        ("*/*.c", "a/a.c", False),
        ("**/*.c", "a.c", False),
        ("**/*.c", "a/b/a.c", False),
        ("a/**", "a/b/c", False),
        ("a/**", "a", True),
        ("a/**/b", "a/b", False),
        ("a/**/b", "a/x/y/b", False),
        ("a/**/b", "a/x/cb", True),
        ("**/a", "x/a/y", False),
        ("a?", "ab", False),
        ("a?", "a", True),
        ("[ab].c", "b.c", False),
        ("[^ab].c", "b.c", True),
        (r"\*", "a", True),
        (r"\*", "*", False),
        ("a.c", "abc", True),
        ("*\n!a", "a/b", True),
        ("*\n! a", "a/b", True),
        ("*\n!a/b", "a/c", False),
        ("!a\n*", "a", False),
        ("*\n!a\na/b", "a/b/c", False),
        ("*\n!a\na/b\n!a/b/c", "a/b/c", True),
    ],
)
def test_rules_mean_what_they_mean_to_docker(ignored, path, expected) -> None:
    assert is_sent(path, rules_of(ignored)) == expected


def test_the_digest_is_another_when_a_file_of_the_image_changes(tmp_path) -> None:
    (tmp_path / "app").mkdir()
    names = ("Dockerfile", "docker-compose.yml", "app/x.py", "README.md")
    for name, text in ((".dockerignore", "*\n!app\n"), *((name, "1") for name in names)):
        (tmp_path / name).write_text(text)
    first = digest_of(tmp_path)
    (tmp_path / "README.md").write_text("2")
    assert digest_of(tmp_path) == first
    for name in names[:-1]:
        (tmp_path / name).write_text("2")
        assert digest_of(tmp_path) != first
        (tmp_path / name).write_text("1")
    (tmp_path / "app" / "x.py").chmod(0o755)
    assert digest_of(tmp_path) != first
