"""Errors in the format of the Open Inference Protocol."""

from dataclasses import replace

from app.errors import Loc, PullbackError, Unprocessable, unprocessable
from app.http.problems import RenderedError
from app.requests.negotiation import JSON
from app.routes.openinference.models import Model


def dialect(error: PullbackError, instance: str, model: Model | None = None) -> RenderedError:
    """Render an error as one sentence that names the client's fields, which are the tensors of a ``model``."""
    del instance
    status = 400 if isinstance(error, Unprocessable) else error.status
    if isinstance(error, Unprocessable) and error.entries:
        entry = error.entries[0]
        error = unprocessable([replace(entry, loc=_client_loc(model, entry.loc))])
    return RenderedError(status, JSON, {"error": error.sentence()})


def _client_loc(model: Model | None, loc: Loc) -> Loc:
    """Return the location in the client's request of a location in the native one."""
    match loc:
        case ("attrs", *rest):
            return ("parameters", *rest)
        case (str(field), str(slot), *rest) if model is not None:
            inputs = model.inputs.values()
            name = next((tensor.name for tensor in inputs if (tensor.field, tensor.slot.name) == (field, slot)), None)
            return loc if name is None else ("inputs", name, *rest)
        case _:
            return loc
