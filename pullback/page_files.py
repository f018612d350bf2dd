"""The files of the pages of ops: Python files of a folder, and one in each folder of a SavedModel there."""

import re
from pathlib import Path

SAVED_MODEL = "saved_model.pb"
_OF_A_MODEL = re.compile(r"saved_model\.pb|variables\.(index|data-\d{5}-of-\d{5})")


def pages_in(folder: Path) -> list[Path]:
    """Return the pages of a folder, in order of name: its Python files, and ``NAME/NAME.py`` beside a SavedModel.

    Names that begin with ``_`` or ``.`` are none. Raises ``OSError`` for a folder that cannot be read.
    """
    visible = [path for path in folder.iterdir() if path.name[0] not in "_."]
    models = [path / f"{path.name}.py" for path in visible if _has_model(path)]
    return sorted([path for path in visible if path.suffix == ".py"] + [page for page in models if page.is_file()])


def _has_model(folder: Path) -> bool:
    try:
        return (folder / SAVED_MODEL).is_file()
    except OSError:
        return False  # such as the lost+found of a volume, which only root may read


def is_of_saved_model(path: str) -> bool:
    """Return whether a path is that of a file of a SavedModel."""
    return _OF_A_MODEL.fullmatch(path.rpartition("/")[2]) is not None
