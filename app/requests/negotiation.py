"""Content negotiation, and the body of a request as one of our models."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from app.errors import NotAcceptable, UnsupportedMediaType, unprocessable, wrong
from app.requests.models import MAX_NAMES
from app.tensors.casting import Document, describe
from app.tensors.strict_json import Body, parse
from app.tensors.validation import entries

JSON = "application/json"
SHORT_ACCEPT = 256
QUALITY = re.compile(r"q=(0(?:\.[0-9]*)?|1(?:\.0*)?)")

Headers = Mapping[bytes, bytes]
Model = TypeVar("Model", bound=BaseModel)


def content_type(headers: Headers, supported: Sequence[str] = (JSON,), default: str = "") -> str:
    """Return the media type of the body, ``default`` if the client does not name it.

    Raises ``UnsupportedMediaType`` for a media type that is not ``supported``.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1") or default
    if kind not in supported:
        raise UnsupportedMediaType(f"expected Content-Type: {' or '.join(supported)}, got {kind or 'none'}")
    return kind


def accepted(headers: Headers, offered: tuple[str, ...] = (JSON,)) -> str:
    """Return the media type of the response: the client's preferred one, the first offered if it has no preference.

    Raises ``NotAcceptable`` if the client accepts none of those offered.
    """
    accept = headers.get(b"accept", b"")
    return (_known_choice if len(accept) <= SHORT_ACCEPT else _choice)(accept, offered)


def _choice(header: bytes, offered: tuple[str, ...]) -> str:
    accept = header.decode("latin-1").lower()
    if accept.strip() in ("", "*/*"):
        return offered[0]
    parts = [(kind, _quality(parameters)) for kind, *parameters in map(_pieces, accept.split(","))]
    preferences = {media_type: _preference(media_type, parts) for media_type in offered}
    best = max(offered, key=preferences.__getitem__)
    if not preferences[best][0]:
        raise NotAcceptable(f"expected Accept: {' or '.join(offered)}, got {accept}")
    return best


# There are few different headers, and a client sends the same one each time.
_known_choice = lru_cache(maxsize=256)(_choice)


def _preference(media_type: str, parts: Sequence[tuple[str, float]]) -> tuple[float, int, int]:
    """Return the client's preference for a type: its quality, then how specific and how early its range is."""
    for breadth, name in enumerate((media_type, f"{media_type.partition('/')[0]}/*", "*/*")):
        for position, (kind, quality) in enumerate(parts):
            if kind == name:
                return quality, -breadth, -position
    return 0.0, 0, 0


def _pieces(part: str) -> list[str]:
    return ["".join(piece.split()) for piece in part.split(";")]


def _quality(parameters: Sequence[str]) -> float:
    """Return the quality among the parameters of a media type, 1 if there is none."""
    return next((float(match[1]) for parameter in parameters if (match := QUALITY.fullmatch(parameter))), 1.0)


def read(body: Body, model: type[Model]) -> Model:
    """Return a body as a model; raises ``Malformed`` or ``Unprocessable``."""
    return validated(fields_of(body), model)


def fields_of(body: Body, parse: Callable[[Body], Any] = parse) -> Document:
    """Return the fields of a body that ``parse`` reads; raises ``Malformed`` or ``Unprocessable``."""
    document = parse(body)
    if not isinstance(document, dict):
        raise wrong((), "expected an object", expected="an object", got=describe(document))
    fields = document if isinstance(document, Document) else Document(cast(dict[str, Any], document))
    if len(fields) > MAX_NAMES:
        raise wrong((), "too many fields", expected=f"at most {MAX_NAMES} fields", got=str(len(fields)))
    return fields


def validated(fields: Mapping[str, Any], model: type[Model]) -> Model:
    """Return the fields of a request as a model; raises ``Unprocessable``."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), model.model_fields)) from None
