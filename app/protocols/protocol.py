"""What a protocol is to the service: the paths that it has, who answers there, and how its errors are told."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Scope

from app.engine import Engine
from app.errors import MAX_GOT, MethodNotAllowed, clip, wrong
from app.problems import Dialect
from app.routes.answering import Reply
from app.routes.plans import Plans
from app.settings import ProtocolName
from app.tensors.document import dumps
from ops import Op

Labels = tuple[str, str]
"""The op and the operation that a request is counted as."""


@dataclass(frozen=True)
class Protocol:
    """One protocol.

    ``has`` tells whether a path is this protocol's, so that even an error there is; ``serve`` makes the app that
    answers on all of them, with plans kept in common with the others. ``counted`` gives, for the ops that are served,
    the paths that are known before a body is read and what they are counted as. ``unpacks``: bodies may be compressed,
    and have more in them than JSON.
    """

    name: ProtocolName
    has: Callable[[str], bool]
    serve: Callable[[Engine, Plans], ASGIApp]
    dialect: Dialect
    counted: Callable[[Iterable[Op]], Mapping[str, Labels]]
    unpacks: bool = False


def need_method(scope: Scope, method: str) -> None:
    """Raise ``MethodNotAllowed`` for a request by another method than this path's."""
    if scope["method"] != method:
        detail = f"expected {method} on this path, got {scope['method']}"
        raise MethodNotAllowed(detail, headers={"Allow": method})


def type_variable(op: Op, given: Mapping[str, Any], field: str) -> str | None:
    """Return the dtype of the op's type variable that typed inputs have, ``None`` where none of them has it.

    ``given`` has the name of a dtype for each typed input. Raises ``Unprocessable`` where two inputs differ.
    """
    kinds = {slot.name: given[slot.name] for slot in op.inputs if len(slot.dtypes) > 1 and slot.name in given}
    first = next(iter(kinds), None)
    for name, dtype in kinds.items():
        if first is not None and dtype != kinds[first]:
            expected = f"{clip(str(kinds[first]), MAX_GOT)}, as {first} has"
            raise wrong((field, name), "the inputs differ in their dtype", expected=expected, got=str(dtype))
    return None if first is None else kinds[first]


def document_reply(document: Any, media_type: str = "application/json") -> Reply:
    """Return a document, in which every number is finite, as an answer."""
    body = dumps(document)
    return Reply(media_type, [body], len(body))


def shown(names: Collection[str]) -> str:
    """Return names as a list in a sentence, or that there are none."""
    return ", ".join(names) or "none"
