"""Add the hashes of its files, as the index states them, to each pin of a `pip freeze`: ``hash_freeze.py FILE...``."""

import re
import sys
import tempfile
from pathlib import Path

from pip._internal.req.constructors import install_req_from_line
from pip_compile import PyPIRepository

HASHES = re.compile(r" *\\?\n +--hash=\S+")


def with_hashes(lock: str, repository: PyPIRepository) -> str:
    """Return the lock with the hashes of every pin, for all platforms; comments stay."""
    lines: list[str] = []
    # A pin may be for a newer Python than this one, by its marker. No option of pip-tools says so.
    repository.finder._ignore_requires_python = True
    with repository.allow_all_wheels():
        for line in HASHES.sub("", lock).splitlines():
            found = [] if line.startswith("#") else sorted(repository.get_hashes(install_req_from_line(line)))
            lines.append(" \\\n".join([line, *(f"    --hash={digest}" for digest in found)]))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the files."""
    with tempfile.TemporaryDirectory() as cache:
        repository = PyPIRepository([], cache_dir=cache)
        for path in map(Path, sys.argv[1:]):
            path.write_text(with_hashes(path.read_text(encoding="utf-8"), repository), encoding="utf-8")


if __name__ == "__main__":
    main()
