"""The paths of files on this machine in a text, such as the message of an exception.

URLs, ratios (``m/s``), dates and names with slashes (``a/b``) are not such paths, and neither are paths of Windows.
Each pattern takes linear time: it starts only where its text can start, and never backtracks.
"""

import os
import re
from collections.abc import Callable

# The first folders of paths on Linux, and in common containers.
_STANDARD = (
    *(
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "media",
        "mnt",
        "nix",
        "opt",
        "proc",
        "root",
        "run",
    ),
    *("sbin", "srv", "sys", "tmp", "usr", "var"),
)
_ROOT = frozenset((*_STANDARD, *os.listdir("/")))
_SOURCE = r"(?:py[cidx]?|cc|cpp|cxx|cu|c|hh|hpp|h|inc|so(?:\.\d+)*)"
_NAME, _PLAIN = r"[\w.@~+%=-]", r"[\w.+-]"
# A path begins after a space, a quote, a bracket or the like, or right after an option: -I/usr/include.
_BEGIN = r"(?:(?<![\w.~/\\)\]}@%+=-])|(?<=[^\w]-[A-Za-z])|(?<=\w=))"
_QUOTED = re.compile(r"(?<!\w)(['\"])(/[^'\"\n/]++/[^'\"\n]++)\1")
_TOKEN = re.compile(
    r"(?P<foreign>(?<![\w+.-])(?!file:)[A-Za-z][\w+.-]*+://[^\s'\"<>]*+|(?<!\w)[A-Za-z]:[\\/][^\s'\"<>]*+)"
    r"|(?P<url>(?<![\w+.-])file:/++[^\s'\"<>]*+)"
    rf"|{_BEGIN}(?:(?P<absolute>/(?:{_NAME}++/*+)++)|(?P<relative>(?:~{_NAME}*+|\.\.?+)(?:/++{_NAME}++)++/?+)"
    rf"|(?P<source>\w{_PLAIN}*+/++(?:{_PLAIN}++/++)*+{_PLAIN}++))(?P<line>(?::\d++)*+)"
)
_IS_SOURCE = re.compile(rf".*\.{_SOURCE}", re.DOTALL)
_EXTENSION = re.compile(r"\.[A-Za-z]\w{0,4}")


def replace_paths(text: str, replacement: Callable[[str], str]) -> str:
    """Return a text with ``replacement(path)`` in place of each path of a file on this machine."""

    def quoted(match: re.Match[str]) -> str:
        quote, path = match[1], match[2]
        return f"{quote}{replacement(path)}{quote}" if _is_absolute(path) else match[0]

    def token(match: re.Match[str]) -> str:
        if match["foreign"] is not None:
            return match[0]
        whole = match[0]
        path = whole.rstrip(".")
        name = path.removesuffix(match["line"] or "").rstrip(".")
        if match["absolute"] is not None and not _is_absolute(name):
            return whole
        if match["source"] is not None and not _IS_SOURCE.fullmatch(name):
            return whole
        return replacement(path) + whole[len(path) :]

    return _TOKEN.sub(token, _QUOTED.sub(quoted, text))


def without_folders(path: str) -> str:
    """Return a path without its folders; one that begins in no certain folder says nothing of this machine."""
    return _last(path) if path.startswith(("/", "~", "file:")) else path


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _is_absolute(path: str) -> bool:
    """Return whether a text that begins with a slash is a path of this machine, or names a file."""
    first, _, rest = path.strip("/").partition("/")
    return (bool(rest) and first in _ROOT) or _EXTENSION.fullmatch(os.path.splitext(_last(path))[1]) is not None
