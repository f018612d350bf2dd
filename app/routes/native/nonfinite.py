"""NaN and the infinities in the responses of checks, as strings: JSON has no numbers for them."""

import math
from collections.abc import Mapping
from typing import Any, cast

from app.requests.answering import Reply
from app.requests.negotiation import JSON
from app.tensors.strict_json import dumps


def spell_nonfinite(tree: Any) -> Any:
    """Return a document with NaN and the infinities as strings."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return "NaN" if math.isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
    if isinstance(tree, Mapping):
        return {key: spell_nonfinite(value) for key, value in cast(Mapping[str, Any], tree).items()}
    if isinstance(tree, list | tuple):
        return [spell_nonfinite(value) for value in cast(list[Any], tree)]
    return tree


def spelled_reply(document: Mapping[str, Any]) -> Reply:
    """Return a document as a JSON response, with NaN and the infinities as strings."""
    return Reply(JSON, [dumps(spell_nonfinite(document))])
