"""Checks of an op of a service, by the service, at the inputs of a recorded request."""

import json
from typing import Any

from pullback.bodies import Body
from pullback.calls import JSON, Call, op_path
from pullback.client import Client
from pullback.errors import BadArgument
from pullback.gradcheck.function import as_object, shown
from pullback.gradcheck.number_comparison import Tolerances

Document = dict[str, Any]
CHECKS = ("contract", "value", "derivative")


def check_op(client: Client, op: str, content: Any, seed: int, tolerances: Tolerances) -> Document:
    """Return the report on an op, in the dtype of a request to it.

    Raises ``BadArgument`` for a request with many points, ``PullbackError`` if the service refuses the check.
    """
    found = as_object(content)
    if found is None or as_object(found.get("inputs")) is None or found.get("points"):
        raise BadArgument(f"expected a request with inputs of one point, got {shown(content)}")
    fields: Document = {name: found[name] for name in ("inputs", "attrs", "parameters") if name in found}
    if found.get("dtype") is not None:
        fields["dtypes"] = [found["dtype"]]
    fields |= {"checks": CHECKS, "seed": seed}
    fields["tolerances"] = {"absolute": tolerances.absolute, "relative": tolerances.relative}
    document = client.send(Call(op_path(op, "check"), dict[str, Any], Body(JSON, (json.dumps(fields).encode(),))))
    entries = [{**entry, "places": entry.get("places") or [entry]} for entry in document["checks"]]
    return {**document, "checks": entries, "scope": ""}
