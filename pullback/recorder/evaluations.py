"""Which requests of a protocol evaluate a model or its derivatives, and what inputs they have."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import numpy as np

from pullback.errors import BadAnswer
from pullback.gradcheck.function import as_object, elements, member
from pullback.gradcheck.targets import PROTOCOLS, Protocol, Target, server_target

KEY, VALUE = b'"name"', re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")')
MAX_PARSED = 1 << 20
"""The most bytes of a request that are parsed for the name of its model, which delays the application."""
CALLS: Mapping[str, tuple[str, ...]] = {
    "umbridge": ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"),
    "tesseract": ("apply", "jacobian", "jacobian_vector_product", "vector_jacobian_product"),
}
RECORDED: tuple[Protocol, ...] = (*PROTOCOLS, "pullback")
OF_OP = re.compile(r"v1/ops/([a-z][a-z0-9_]*)/(?:forward|vjp|jvp|hvp|jacobian|hessian)")
OF_MODEL = re.compile(r"v2/models/([^/]+)(?:/versions/[^/]+)?/infer")
VJP = ".vjp"


class Input(NamedTuple):
    """The inputs of a request, as ``--inputs`` has them, and its configuration."""

    given: Any
    config: Mapping[str, Any]


def recorded_target(text: str) -> Target | None:
    """Return the server that a text names, as in ``pullback check``, or a service: ``pullback+http://host:8000/op``.

    Raises ``BadArgument`` for an unknown protocol.
    """
    protocol, _, url = text.partition("+")
    return Target("pullback", url) if protocol == "pullback" and "://" in url else server_target(text)


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a server at a URL with this ``path``: of one ``model``, or with "" of all."""

    protocol: Protocol
    path: str
    model: str

    def are_at(self, method: str, target: str) -> bool:
        """Report whether requests with a target are evaluations."""
        return method == "POST" and self._call(target) is not None

    def model_of(self, target: str, body: bytes) -> str | None:
        """Return the model that a request evaluates, ``None`` for one that is not recorded."""
        call = self._call(target)
        if call is None:
            return None
        if self.protocol == "umbridge":
            name = _name_in(body)
        else:
            name = "" if self.protocol == "tesseract" else call.removesuffix(VJP) if self.protocol == "oip" else call
        return name if name is not None and self.model in ("", name) else None

    def _call(self, target: str) -> str | None:
        """Return the call of a target, or the model of an inference; ``None`` for another target."""
        path = urlsplit(target).path
        if not path.startswith(f"{self.path}/"):
            return None
        call = path[len(self.path) + 1 :]
        if self.protocol in ("oip", "pullback"):
            found = (OF_MODEL if self.protocol == "oip" else OF_OP).fullmatch(call)
            return None if found is None else unquote(found[1])
        return call if call in CALLS[self.protocol] else None


def _name_in(body: bytes) -> str | None:
    """Return the name of the model in a request of UM-Bridge. A config may have such a member, too."""
    if body.count(KEY) == 1:
        found = VALUE.match(body, body.find(KEY) + len(KEY))
        text = found[1] if found is not None else b""
    elif len(body) <= MAX_PARSED:
        text = body
    else:
        return None
    try:
        name = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name = name if text is not body else (as_object(name) or {}).get("name")
    return name if isinstance(name, str) else None


def input_of(protocol: Protocol, body: Any) -> Input:
    """Return the inputs of a request, in inferences with the cotangents; raise ``BadAnswer`` for one without inputs."""
    if protocol == "umbridge":
        return Input(member(body, "input", "the request"), _object(body, "config"))
    if protocol == "tesseract":
        return Input(member(body, "inputs", "the request"), {})
    tensors = elements(member(body, "inputs", "the request"), "the request")
    given = {str(member(each, "name", "the request")): _nested(each) for each in tensors}
    return Input(given, _object(body, "parameters"))


def _object(body: Any, name: str) -> Mapping[str, Any]:
    return as_object(cast(dict[str, Any], body).get(name)) or {}


def _nested(tensor: Any) -> Any:
    """Return the data of a tensor of an inference, which may be flat, in its shape."""
    what = "the request"
    data, shape = elements(member(tensor, "data", what), what), elements(member(tensor, "shape", what), what)
    try:
        return np.array(data, object).reshape(shape).tolist()
    except (ValueError, TypeError) as error:
        raise BadAnswer(f"{what}: expected data of shape {shape} ({error})") from error
