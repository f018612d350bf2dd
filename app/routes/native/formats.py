"""The formats of requests and answers: how a body becomes a document, and how an answer's tree becomes bytes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from app.autodiff.binding import Decode
from app.autodiff.derivatives import Absent
from app.requests.models import MAX_NAMES
from app.requests.negotiation import not_fields
from app.requests.operations import Tree
from app.tensors import fast_json, json, safetensors, strict_json
from app.tensors.decoding import decode
from app.tensors.json import Encoding
from app.tensors.strict_json import Body
from ops import Array

Answer = Mapping[str, Tree]


@dataclass(frozen=True)
class Format:
    """A format: how a body is parsed into fields, how their tensors are decoded, and how an answer is written.

    The tensors of a format that ``is_binary`` are views of the body.
    """

    media_type: str
    parse: Callable[[Body], dict[str, Any]]
    decode: Decode
    write: Callable[[Answer, Encoding], Sequence[Body]]
    is_binary: bool = False


def _from_json(body: Body) -> dict[str, Any]:
    document = strict_json.parse(body) if len(body) < fast_json.LONG else fast_json.parse(body)
    if not isinstance(document, dict) or len(cast(dict[str, Any], document)) > MAX_NAMES:
        raise not_fields(document)
    return cast(dict[str, Any], document)


def _in_json(answer: Answer, encoding: Encoding) -> Sequence[Body]:
    """Return the answer as JSON: tensors encoded, absent derivatives as null, with the reason under ``absent``."""
    missing: list[Absent] = []
    document = _encoded(answer, encoding, missing)
    return [strict_json.dumps(document | _reasons(answer) if missing else document)]


def _in_safetensors(answer: Answer, encoding: Encoding) -> Sequence[Body]:
    """Return the answer as tensors named by their paths; what is absent is left out, and its reason in the metadata."""
    del encoding
    return safetensors.write(dict(_named(answer)), _reasons(answer))


def _encoded(tree: Tree, encoding: Encoding, missing: list[Absent]) -> Any:
    """Return a tree with its tensors encoded, and add what is absent to ``missing``."""
    if isinstance(tree, dict):
        return {name: _encoded(value, encoding, missing) for name, value in cast(dict[str, Tree], tree).items()}
    if isinstance(tree, list):
        return [_encoded(value, encoding, missing) for value in cast(list[Tree], tree)]
    if isinstance(tree, Absent):
        missing.append(tree)
        return None
    return json.encode(tree, encoding)


def _named(tree: Tree, *path: str) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a tree by their paths; lists, which are orders, count from 1."""
    if isinstance(tree, dict):
        for name, value in cast(dict[str, Tree], tree).items():
            yield from _named(value, *path, name)
    elif isinstance(tree, list):
        for order, value in enumerate(cast(list[Tree], tree), 1):
            yield from _named(value, *path, str(order))
    elif not isinstance(tree, Absent):
        yield "/".join(path), tree


def _reasons(answer: Answer) -> dict[str, Any]:
    """Return what an answer says of the derivatives that are absent, nothing where none is."""
    absent = next((found for value in answer.values() if (found := _absent(value))), None)
    return {"absent": absent} if absent else {}


def _absent(tree: Tree) -> Any:
    """Return the reasons in a tree, in its shape, without the branches that have none; lists keep their places."""
    if isinstance(tree, dict):
        found = {name: _absent(value) for name, value in cast(dict[str, Tree], tree).items()}
        return {name: reasons for name, reasons in found.items() if reasons}
    if isinstance(tree, list):
        levels = [_absent(value) for value in cast(list[Tree], tree)]
        return levels if any(levels) else []
    return str(tree) if isinstance(tree, Absent) else ""


FORMATS: Mapping[str, Format] = {
    known.media_type: known
    for known in (
        Format("application/json", _from_json, json.decode, _in_json),
        Format(safetensors.MEDIA_TYPE, safetensors.parse, decode, _in_safetensors, is_binary=True),
    )
}
