"""The pages and the names among the arguments of a command."""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from pullback.errors import BadArgument, CannotConnect
from pullback.page_files import SAVED_MODEL, pages_in
from pullback.wording import near_names

GRAPH = ".graph.json"
"""The end of the name of a file with the document of a graph, which is an op like one with a page."""
MOST_LISTED = 1000
"""The most files that are looked at for one whose name is like another."""


def pages_and_names(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the pages that arguments give, as files or folders, and the other arguments, which are names of ops.

    An argument is a path if it has a slash, ends in ``.py`` or ``.graph.json``, or is a folder here. Raises
    ``BadArgument`` for a path without a page.
    """
    paths = [Path(argument) for argument in arguments if _is_path(argument)]
    pages = [page.absolute() for path in paths for page in pages_at(path)]
    return list(dict.fromkeys(pages)), [argument for argument in arguments if not _is_path(argument)]


def pages_at(path: Path) -> Iterable[Path]:
    """Return the page or the graph at a path, or those of a folder, in order of name."""
    if path.is_file() and path.name.endswith((".py", GRAPH)):
        return [path]
    if path.is_dir():
        try:
            graphs = [page for page in path.iterdir() if page.name.endswith(GRAPH) and page.name[0] not in "_."]
            found = sorted([*pages_in(path), *graphs])
        except OSError as error:
            raise BadArgument(f"cannot read {path}: {error.strerror}") from None
        if found:
            return found
        if (path / SAVED_MODEL).is_file():
            name = path.absolute().name
            cure = f"write OP = Op.from_saved_model(Path(__file__).parent, ...) into {name}/{name}.py"
            raise BadArgument(f"expected a page beside the SavedModel in {path}, found none; {cure}")
        raise BadArgument(
            f"expected pages of ops (*.py) or graphs (*{GRAPH}) in {path}, found none; pullback new NAME writes one"
        )
    raise BadArgument(f"expected a page of an op, a Python file, a graph (*{GRAPH}), or a folder of these, got {path}")


@contextmanager
def misspelt_paths(names: Sequence[str]) -> Generator[None]:
    """Where no service answers, say too that no path here has the first name, and which one it may mean."""
    try:
        yield
    except CannotConnect as error:
        if not names:
            raise
        near = next(iter(_near_paths(names[0])), None)
        hint = f": did you mean {near}?" if near else ""
        raise CannotConnect(f"{error}; and no file or folder here is named {names[0]}{hint}") from error


def _near_paths(name: str) -> list[str]:
    """Return the pages and folders here, and the pages in these folders, whose names are like one."""
    try:
        here = [*islice(Path().iterdir(), MOST_LISTED)]
        folders = [path for path in here if path.is_dir() and path.name[0] not in "_."]
        pages = islice(chain(Path().glob("*.py"), *(folder.glob("*.py") for folder in folders)), MOST_LISTED)
        paths = {path.stem: str(path) for path in [*folders, *pages]}
    except OSError:
        return []
    return [paths[near] for near in near_names(name, paths, 1)]


def _is_path(argument: str) -> bool:
    return os.sep in argument or argument.endswith((".py", GRAPH)) or Path(argument).is_dir()
