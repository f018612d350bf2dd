"""The formats of requests and responses: JSON and safetensors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from app.autodiff.binding import Decode
from app.autodiff.derivatives import Absent
from app.requests.models import MAX_NAMES
from app.requests.negotiation import not_fields
from app.requests.operations import Tree
from app.tensors import fast_json, json, safetensors
from app.tensors.decoding import decode
from app.tensors.json import Encoding
from app.tensors.layouts import Layout, lay_out
from app.tensors.strict_json import Body
from ops import Array

Answer = Mapping[str, Tree]


@dataclass(frozen=True)
class Format:
    """A format: functions that parse a body into fields, decode their tensors, and lay out a response.

    If ``is_binary``, the tensors are views of the body.
    """

    media_type: str
    parse: Callable[[Body], dict[str, Any]]
    decode: Decode
    lay_out: Callable[[Answer, Encoding], Layout]
    is_binary: bool = False


def _parse_json(body: Body) -> dict[str, Any]:
    document = fast_json.parse(body)
    if not isinstance(document, dict) or len(cast(dict[str, Any], document)) > MAX_NAMES:
        raise not_fields(document)
    return cast(dict[str, Any], document)


def _lay_out_json(answer: Answer, encoding: Encoding) -> Layout:
    """Return the response as JSON: absent derivatives are null, with their reasons under ``absent``."""
    missing: list[Absent] = []
    document = _encode(answer, encoding, missing)
    return lay_out(document | _reasons(answer) if missing else document)


def _lay_out_safetensors(answer: Answer, encoding: Encoding) -> Layout:
    """Return the response as tensors named by their paths; the metadata has the reasons for absent derivatives."""
    del encoding
    return safetensors.lay_out(dict(_tensors(answer)), _reasons(answer))


def _encode(tree: Tree, encoding: Encoding, missing: list[Absent]) -> Any:
    """Return a tree with its tensors encoded; append absent derivatives to ``missing``."""
    if isinstance(tree, dict):
        return {name: _encode(value, encoding, missing) for name, value in cast(dict[str, Tree], tree).items()}
    if isinstance(tree, list):
        return [_encode(value, encoding, missing) for value in cast(list[Tree], tree)]
    if isinstance(tree, Absent):
        missing.append(tree)
        return None
    return json.encode(tree, encoding)


def _tensors(tree: Tree, *path: str) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a tree with their paths; the items of a list are orders, numbered from 1."""
    if isinstance(tree, dict):
        for name, value in cast(dict[str, Tree], tree).items():
            yield from _tensors(value, *path, name)
    elif isinstance(tree, list):
        for order, value in enumerate(cast(list[Tree], tree), 1):
            yield from _tensors(value, *path, str(order))
    elif not isinstance(tree, Absent):
        yield "/".join(path), tree


def _reasons(answer: Answer) -> dict[str, Any]:
    """Return the field ``absent`` of a response: the reasons for absent derivatives, if there are any."""
    absent = next((reasons for value in answer.values() if (reasons := _reason_tree(value))), None)
    return {"absent": absent} if absent else {}


def _reason_tree(tree: Tree) -> Any:
    """Return the reasons in a tree, without the branches that have none; lists keep their length."""
    if isinstance(tree, dict):
        branches = {name: _reason_tree(value) for name, value in cast(dict[str, Tree], tree).items()}
        return {name: reasons for name, reasons in branches.items() if reasons}
    if isinstance(tree, list):
        levels = [_reason_tree(value) for value in cast(list[Tree], tree)]
        return levels if any(levels) else []
    return str(tree) if isinstance(tree, Absent) else ""


FORMATS: Mapping[str, Format] = {
    each.media_type: each
    for each in (
        Format("application/json", _parse_json, json.decode, _lay_out_json),
        Format(safetensors.MEDIA_TYPE, safetensors.parse, decode, _lay_out_safetensors, is_binary=True),
    )
}
