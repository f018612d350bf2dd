"""The fields of a request: the object in its body, validated by a model."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from app.errors import unprocessable, wrong
from app.requests import models
from app.tensors.casting import Document, describe
from app.tensors.strict_json import Body, parse
from app.tensors.validation import entries

Model = TypeVar("Model", bound=BaseModel)


def read(body: Body, model: type[Model], parse: Callable[[Body], Any] = parse) -> Model:
    """Return a body that ``parse`` reads as a model; raises ``Malformed`` or ``Unprocessable``."""
    return validated(fields_of(body, parse), model)


def fields_of(body: Body, parse: Callable[[Body], Any] = parse) -> Document:
    """Return the fields of a body that ``parse`` reads; raises ``Malformed`` or ``Unprocessable``."""
    document = parse(body)
    if not isinstance(document, dict):
        raise wrong((), "expected an object", expected="an object", got=describe(document))
    fields = document if isinstance(document, Document) else Document(cast(dict[str, Any], document))
    if len(fields) > models.MAX_NAMES:
        raise wrong((), "too many fields", expected=f"at most {models.MAX_NAMES} fields", got=str(len(fields)))
    return fields


def validated(fields: Mapping[str, Any], model: type[Model]) -> Model:
    """Return the fields of a request as a model; raises ``Unprocessable``."""
    if fields.get("points") and (why := getattr(model, "WHY_ONE_POINT", "")):
        raise wrong(("points",), why, expected="a request for each point", got="points")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), model.model_fields)) from None
