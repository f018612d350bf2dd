"""The fields of a request: the object in its body, validated by a model, and fields that exclude each other."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from app.errors import unprocessable, wrong
from app.requests import models
from app.requests.models import HessianRequest, JacobianRequest, OperationRequest, PointsRequest
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


def check_exclusions(request: OperationRequest) -> None:
    """Raise ``Unprocessable`` for fields that exclude others, or need them."""
    if isinstance(request, PointsRequest) and request.partial and not request.points:
        message = "only some of many points can fail"
        raise wrong(("partial",), message, expected='"points": true with it', got="partial alone")
    if not isinstance(request, JacobianRequest | HessianRequest):
        return
    if request.sparse is None and request.sparsity is not None:
        raise wrong(("sparsity",), "a sparsity without sparse", expected="sparse: coo or csr", got="none")
    if request.sparse is not None and request.digits:
        message = "the digits of a sparse matrix are not estimated"
        raise wrong(("digits",), message, expected="sparse or digits", got="both")
    if request.sparse is not None and request.points:
        message = "each point has its own request for a sparse matrix"
        raise wrong(("points",), message, expected="sparse or points", got="both")
    if request.sparse is not None and isinstance(request, HessianRequest) and request.diagonal:
        raise wrong(("diagonal",), "a diagonal is not sparse", expected="sparse or diagonal", got="both")
