"""NaN and the infinities in UM-Bridge's responses, for which neither JSON nor the protocol has a form.

===========  ============================================  =======================================================
``literal``  ``NaN``, ``Infinity``, ``-Infinity``          read by the parsers of the clients for Python and Julia
``string``   ``"NaN"``, ``"Infinity"``, ``"-Infinity"``    read by jsonlite, the parser of R's client
``error``    an error that names the first such number     for umbridge.h of C++, whose parser reads no form of them
===========  ============================================  =======================================================

null is not among the forms: it would stand for all three, and R removes it from a vector. ``config.nonfinite`` chooses
the form, else the client's User-Agent does.
"""

import json
import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from app.errors import NotAcceptable
from ops import Array

Form = Literal["literal", "string", "error"]
FORMS: tuple[Form, ...] = get_args(Form)
# The most numbers that are written in one call.
PART = 1 << 12
# The HTTP libraries of umbridge.h and of R's client. Clients with other parsers get literals, as from other servers.
_FORM_OF_LIBRARY: dict[bytes, Form] = {b"cpp-httplib/": "error", b"httr2/": "string"}


def form_for(user_agent: bytes) -> Form:
    """Return the form that the client with this User-Agent reads."""
    for library, form in _FORM_OF_LIBRARY.items():
        if library in user_agent:
            return form
    return "literal"


def dumps(output: Array | Sequence[Array], form: Form) -> bytes:
    """Return the JSON text of one flat array or several, some with NaN or infinities.

    Raises ``NotAcceptable`` for the form ``error``.
    """
    if form == "error":
        raise _unreadable(output)
    if isinstance(output, np.ndarray):
        # In parts, because no other thread could run while 10^6 numbers are written.
        parts = (output[start : start + PART] for start in range(0, output.size, PART))
        return b"[%b]" % b", ".join(json.dumps(_items(part, form))[1:-1].encode() for part in parts)
    return b"[%b]" % b", ".join(dumps(array, form) for array in output)


def _items(array: Array, form: Form) -> list[float | str]:
    items: list[float] = array.tolist()
    if form == "literal":
        return list(items)
    return [item if math.isfinite(item) else json.dumps(item) for item in items]


def _unreadable(output: Array | Sequence[Array]) -> NotAcceptable:
    arrays = {(): output} if isinstance(output, np.ndarray) else {(i,): array for i, array in enumerate(output)}
    loc, array = next((loc, array) for loc, array in arrays.items() if not np.isfinite(array).all())
    index = int(np.isfinite(array).argmin())
    place, got = ".".join(map(str, ("output", *loc, index))), json.dumps(float(array[index]))
    cure = 'set "nonfinite" in the config to "string" or "literal" if your client reads one of them'
    return NotAcceptable(f"{place}: expected a finite number, since JSON has no others, got {got}; {cure}")
