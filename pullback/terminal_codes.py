"""The codes by which terminals color text."""

import re

_CODE = re.compile(r"\x1b\[[0-9;]*+[A-Za-z]")


def without_terminal_codes(text: str) -> str:
    """Return the text, such as that of an exception of Keras, without its codes."""
    return _CODE.sub("", text)
