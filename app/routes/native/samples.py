"""Real answers for the OpenAPI document of each op: those to the examples of its requests.

They are computed in mode eager, which takes milliseconds and traces nothing. An op that fails has none.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from app.errors import PullbackError
from app.execution.engine import Engine
from app.requests.negotiation import JSON
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans, run
from app.requests.tensor_schemas import Schema
from app.routes.native.catalogue import contract
from app.routes.native.derivatives import write_json
from app.routes.native.descriptions import EXAMPLE
from app.runtime.cancellation import Checkpoint
from app.tensors.casting import Document
from ops import Op

# The time for the answers of one op, and the largest answer that is shown, in bytes.
LIMIT_S, LARGEST = 10.0, 4096


class Samples:
    """A document with the answers, made once; they are computed op by op, in turn with other work."""

    def __init__(self, engine: Engine, plans: Plans) -> None:
        """Start with none."""
        self._engine, self._plans = engine, plans
        self._lock, self._written = asyncio.Lock(), b""

    async def written(self, make: Callable[[], Schema]) -> bytes:
        """Return, as JSON, the OpenAPI document that ``make`` returns, with an answer for each path that has one."""
        async with self._lock:
            if not self._written:
                document = await asyncio.to_thread(make)
                found = await self._answers(document)
                self._written = await asyncio.to_thread(_written, document, found)
        return self._written

    async def _answers(self, document: Schema) -> dict[str, Any]:
        engine, ops = self._engine, self._engine.registry.ops
        found = dict[str, Any]()
        for op in ops.values():
            bodies = {name: body for name in OPERATIONS if (body := _example(document, op, name)) is not None}
            try:
                until = time.monotonic() + LIMIT_S
                work = partial(self._of_op, op, bodies)
                found |= await engine.scheduler.run(work, queue="long", deadline=until, owner=op.owner)
            except PullbackError:
                continue
        if (op := ops.get(EXAMPLE)) is not None:
            found["/v1/ops/{op}"] = await asyncio.to_thread(
                lambda: contract(engine, op).model_dump(mode="json", exclude_unset=True)
            )
        return found

    def _of_op(self, op: Op, bodies: Mapping[str, Mapping[str, Any]], checkpoint: Checkpoint) -> dict[str, Any]:
        found = dict[str, Any]()
        for name, body in bodies.items():
            checkpoint()
            fields = Document({**body, "mode": "eager"})
            try:
                plan = self._plans.plan(OPERATIONS[name], op, fields)
                _, work = plan.work(fields)
                text = b"".join(
                    map(
                        bytes,
                        write_json(plan.operation.tree(plan, run(work, checkpoint)), plan.request.encoding).pieces,
                    )
                )
            except PullbackError:
                continue
            if len(text) <= LARGEST:
                found[_path(op, name)] = json.loads(text)
        return found


def _written(document: Schema, found: Mapping[str, Any]) -> bytes:
    """Return a document as JSON, with the answers that were found."""
    paths = {path: _with_sample(item, found.get(path)) for path, item in document["paths"].items()}
    return json.dumps({**document, "paths": paths}, ensure_ascii=False).encode()


def _path(op: Op, operation: str) -> str:
    return f"/v1/ops/{op.name}/{operation}"


def _example(document: Schema, op: Op, operation: str) -> Mapping[str, Any] | None:
    """Return the first example of a request, ``None`` if there is none."""
    item = document["paths"].get(_path(op, operation))
    if item is None or "eager" not in op.modes:
        return None
    examples = item["post"]["requestBody"]["content"][JSON]["examples"]
    return next((each["value"] for each in examples.values()), None)


def _with_sample(item: Schema, sample: Any) -> Schema:
    """Return the operations of a path, with ``sample`` as the example of their answers."""
    if sample is None:
        return item
    described = dict[str, Any]()
    for method, operation in item.items():
        answer = operation["responses"]["200"]
        content = {**answer["content"], JSON: {**answer["content"][JSON], "example": sample}}
        responses = {**operation["responses"], "200": {**answer, "content": content}}
        described[method] = {**operation, "responses": responses}
    return described
