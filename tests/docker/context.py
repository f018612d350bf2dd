"""What a build of an image gets: the files that .dockerignore leaves, and what the Dockerfile copies of them."""

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

# What has a meaning in a pattern; brackets mean the same as in an expression.
SPECIAL = re.compile(r"\*\*/?|[*?.+()|{}$]|\\.")
BUILT_FROM = ("Dockerfile", ".dockerignore", "docker-compose.yml")


class Rule(NamedTuple):
    """A line of .dockerignore: it leaves out what it matches, or keeps it."""

    path: str
    keeps: bool
    pattern: re.Pattern[str]


class Copy(NamedTuple):
    """A file, a folder or a pattern that a stage of the Dockerfile copies from the context."""

    stage: str
    source: str

    def has(self, path: str) -> bool:
        """Whether a file is copied: it, or a folder above it, is the source."""
        return left_out(path, [rule_of(self.source, keeps=False)])[0]


def rules_of(text: str) -> list[Rule]:
    """Return the rules of a .dockerignore."""
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines() if not line.startswith("#")]
    return [rule_of(line.removeprefix("!"), keeps=line.startswith("!")) for line in lines if line]


def rule_of(text: str, *, keeps: bool) -> Rule:
    """Return the rule of a pattern, which is a path from the root of the context."""
    path = posixpath.normpath(text.strip()).lstrip("/")
    return Rule(path, keeps, re.compile(SPECIAL.sub(expression_of, path)))


def expression_of(special: re.Match[str]) -> str:
    """Return the expression of a part of a pattern: `**` is any number of folders, and at the end all that is there."""
    match special[0]:
        case "**" | "**/":
            return ".*" if special.end() == len(special.string) else "(?:.*/)?"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case literal:
            return re.escape(literal[-1])


def is_sent(path: str, rules: Sequence[Rule]) -> bool:
    """Whether Docker sends a file: the last rule that matches it, or a folder above it, keeps it, or none does.

    A folder that is left out is not looked into, unless a rule that keeps something begins with its path.
    """
    above = [parent.as_posix() for parent in PurePosixPath(path).parents if parent.name]
    kept = [f"{rule.path}/" for rule in rules if rule.keeps]
    is_open = all(not left_out(one, rules)[0] or any(k.startswith(f"{one}/") for k in kept) for one in above)
    return is_open and not left_out(path, rules)[0]


def left_out(path: str, rules: Sequence[Rule]) -> tuple[bool, Sequence[bool]]:
    """Return whether the rules leave out a path, and which of them match it.

    As Docker does, it tries a rule only where it would change the result, and then for all that is in a folder.
    """
    parent = posixpath.dirname(path)
    inherited = left_out(parent, rules)[1] if parent else [False] * len(rules)
    is_out, matched = False, list[bool]()
    for rule, is_inherited in zip(rules, inherited, strict=True):
        matched.append(is_inherited or (rule.keeps == is_out and rule.pattern.fullmatch(path) is not None))
        if matched[-1]:
            is_out = not rule.keeps
    return is_out, matched


def sent_files(root: Path) -> list[str]:
    """Return the files that Docker sends to a build, as paths from the root."""
    rules = rules_of((root / ".dockerignore").read_text())
    return sorted(path for path in files_of(root) if is_sent(path, rules))


def files_of(root: Path) -> Iterator[str]:
    """Yield all files, without the folders of tools."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", ".venv", "build")]
        for name in names:
            yield Path(folder, name).relative_to(root).as_posix()


def copies_of(dockerfile: str) -> list[Copy]:
    """Return what the stages of a Dockerfile copy from the context, not from each other."""
    lines = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    found, stage = list[Copy](), ""
    for line in lines.replace("\\\n", " ").splitlines():
        instruction, *words = line.split() or [""]
        match instruction.upper():
            case "FROM":
                stage = words[-1]
            case "COPY" | "ADD" if not any(word.startswith("--from=") for word in words):
                sources = [word for word in words if not word.startswith("--")][:-1]
                found += [Copy(stage, source) for source in sources]
            case _:
                pass
    return found


def missing(copies: Sequence[Copy], files: Sequence[str]) -> list[str]:
    """Return what is copied, but not among the files."""
    return [f"{copy.stage}: {copy.source}" for copy in copies if not any(copy.has(path) for path in files)]


def unused(copies: Sequence[Copy], files: Sequence[str]) -> list[str]:
    """Return the files that no stage copies."""
    return [path for path in files if not any(copy.has(path) for copy in copies)]


def digest_of(root: Path) -> str:
    """Return the digest of all that the image is built of, and of how it is started and tested."""
    tests = [path.relative_to(root).as_posix() for path in (root / "tests" / "docker").glob("*.py")]
    digest = hashlib.sha256()
    for name in sorted({*sent_files(root), *BUILT_FROM, *tests}):
        content, mode = (root / name).read_bytes(), (root / name).stat().st_mode & 0o777
        digest.update(f"{name}\0{mode:o}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
