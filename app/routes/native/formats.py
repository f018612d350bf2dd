"""The formats of requests and responses: JSON and safetensors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from app.autodiff.binding import Decode
from app.autodiff.derivatives import Absent
from app.requests.answering import Reply, laid_out
from app.requests.negotiation import JSON, fields_of
from app.requests.plans import Plan, Tree
from app.tensors import fast_json, json, safetensors
from app.tensors.casting import Document
from app.tensors.decoding import decode
from app.tensors.json import Encoding
from app.tensors.layouts import lay_out
from app.tensors.strict_json import Body
from ops import Array

Answer = Mapping[str, Tree]


@dataclass(frozen=True)
class Format:
    """A format: functions that parse a body into fields, decode their tensors, and write the result of a plan.

    If ``is_binary``, the tensors are views of the body.
    """

    media_type: str
    parse: Callable[[Body], Document]
    decode: Decode
    write: Callable[[Plan, Any], Reply]
    is_binary: bool = False


def _write_json(plan: Plan, result: Any) -> Reply:
    """Return the response as JSON: absent derivatives are null, with their reasons under ``absent``."""
    answer, missing = plan.operation.tree(plan, result), list[Absent]()
    document = _encode(answer, plan.request.encoding, missing)
    return laid_out(JSON, lay_out(document | _reasons(answer) if missing else document))


def _write_safetensors(plan: Plan, result: Any) -> Reply:
    """Return the response as tensors named by their paths; the metadata has the reasons for absent derivatives."""
    answer = plan.operation.tree(plan, result)
    return laid_out(safetensors.MEDIA_TYPE, safetensors.lay_out(dict(_tensors(answer)), _reasons(answer)))


def _encode(tree: Tree, encoding: Encoding, missing: list[Absent]) -> Any:
    """Return a tree with its tensors encoded; append absent derivatives to ``missing``."""
    if isinstance(tree, dict):
        document = dict[str, Any]()
        for name, value in cast(dict[str, Tree], tree).items():
            document[name] = _encode(value, encoding, missing)
        return document
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
        Format(JSON, partial(fields_of, parse=fast_json.parse), json.decode, _write_json),
        Format(safetensors.MEDIA_TYPE, safetensors.parse, decode, _write_safetensors, is_binary=True),
    )
}
