"""A request as it comes in: what it may be written in, and its body as one of our models."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from app.errors import NotAcceptable, UnsupportedMediaType, unprocessable, wrong
from app.routes.wire import MAX_NAMES
from app.tensors.casting import describe
from app.tensors.json import parse
from app.validation import entries

Model = TypeVar("Model", bound=BaseModel)


def accepted(headers: Mapping[bytes, bytes], offered: Sequence[str] = ("application/json",)) -> str:
    """Return the media type to answer in: the first offered that the client takes.

    Raises ``UnsupportedMediaType`` for a body that is not JSON, ``NotAcceptable`` where nothing offered will do.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        got = kind.decode("latin-1") or "none"
        raise UnsupportedMediaType(f"expected Content-Type: application/json, got {got}")
    accept = headers.get(b"accept", b"").decode("latin-1").lower()
    parts = accept.split(",") if accept.strip() else ["*/*"]
    for media_type in offered:
        if any(_takes(part, media_type) for part in parts):
            return media_type
    raise NotAcceptable(f"this answers {' or '.join(offered)}; the request accepts {accept}")


def _takes(part: str, media_type: str) -> bool:
    """Tell whether one part of an Accept header takes a type: ``*/*;q=0.8`` does, ``application/json;q=0`` does not."""
    kind, *parameters = (piece.strip().replace(" ", "") for piece in part.split(";"))
    refused = any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return kind in (media_type, f"{media_type.partition('/')[0]}/*", "*/*") and not refused


def read(body: bytes | bytearray, model: type[Model]) -> Model:
    """Return a JSON body as a model; raises ``Malformed`` or ``Unprocessable``."""
    document = parse(body)
    if not isinstance(document, dict):
        raise wrong((), "not an object", expected='an object such as {"inputs": {...}}', got=describe(document))
    if len(fields := cast(dict[str, Any], document)) > MAX_NAMES:
        expected = f"at most {MAX_NAMES} fields"
        raise wrong((), "too many fields", expected=expected, got=str(len(fields)))
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), model.model_fields)) from None
