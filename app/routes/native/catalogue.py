"""GET /v1/ops and /v1/ops/{op}: the list of ops, and the contract of each."""

import asyncio
from datetime import UTC, datetime
from typing import Any, TypeVar

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest
from fastapi.responses import PlainTextResponse

from app.autodiff.binding import has_order
from app.autodiff.derived import DerivedOp, derivations, origin, variant_of
from app.autodiff.padded_rows import PaddedRows, packings_of
from app.errors import NotFound
from app.execution.engine import Engine
from app.http.request import REQUEST, Request
from app.http.route import PageRoute
from app.requests.answers import JSON
from app.requests.operations import OPERATIONS
from app.routes.native.catalogue_models import (
    ClaimKind,
    ClaimSummary,
    InputSlot,
    LastVerdict,
    ListedOp,
    OpContract,
    OpExample,
    OpList,
    OpSummary,
    OpVerdict,
    OutputSlot,
    ParameterSlot,
    RowCalls,
)
from app.routes.protocol import described, find_op
from app.runtime.refused import REFUSED, refused
from ops import Attrs, Derivative, Formula, Input, Op, Output, Parameter, Registry, Surrogate
from pullback.service_process import SERVICE

OWN = SERVICE / "ops"
# The most shapes of rows in a contract.
SHOWN = 32
# How much of the page of an op is sent.
LARGEST_PAGE = 1 << 20


Summary = TypeVar("Summary", bound=OpSummary)


class Listing:
    """The list of all registered ops."""

    def __init__(self, engine: Engine) -> None:
        """Summarise the ops of an engine."""
        self._engine, registry = engine, engine.registry
        lost = [
            OpSummary(name=op.name, summary="", mechanism="", claim=None, available=False, reason=op.reason)
            for op in registry.unavailable
        ]
        served = [_with_fault(_summary(op), registry.stale.get(op.name)) for op in registry.ops.values()]
        self._listed = [_listed(registry, op) for op in sorted([*served, *lost], key=lambda op: op.name)]

    async def now(self) -> list[ListedOp]:
        """Return the ops with the last verdict on each, and the reason why an op is unavailable."""
        lasts = await asyncio.to_thread(_last_verdicts, self._engine)
        ops, listed = self._engine.registry.ops, self._listed
        now = [_unless_refused(op, ops.get(op.name)) for op in listed] if REFUSED else listed
        return [op.model_copy(update={"last_check": lasts.get(op.name)}) if op.name in lasts else op for op in now]


def catalogue(engine: Engine) -> APIRouter:
    """Return the routes of the catalogue."""
    router = APIRouter(tags=["catalogue"], route_class=PageRoute)
    listing = Listing(engine)

    @router.get("/v1/ops", summary="List all ops", response_model_exclude_unset=True)
    async def ops() -> OpList:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """List all ops with the last verdict on each, and the reason why an op is unavailable."""
        return OpList(ops=await listing.now())

    @router.get("/v1/ops/{op}/verdict", summary="Get the last verdict on an op")
    async def verdict(op: str, http_request: HttpRequest) -> OpVerdict:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Return the last check of the whole op, and whether the op has changed since."""
        found = await find_op(engine, http_request.scope[REQUEST], op)
        return await asyncio.to_thread(verdict_on, engine, found)

    @router.get("/v1/ops/{op}/source", summary="Get the page of an op", response_class=PlainTextResponse)
    async def source(op: str, http_request: HttpRequest) -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Return the file that declares an op, in Python."""
        request: Request = http_request.scope[REQUEST]
        found = await find_op(engine, request, op)
        return await described(engine, request, found, lambda: PlainTextResponse(_page(engine, found.owner)))

    @router.get("/v1/ops/{op}", summary="Get the contract of an op", response_model_exclude_unset=True)
    async def op(op: str, http_request: HttpRequest) -> OpContract:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        """Return the full contract of an op."""
        request: Request = http_request.scope[REQUEST]
        found = await find_op(engine, request, op)
        text = await described(engine, request, found, lambda: contract_text(engine, found))
        answer: Any = Response(text, media_type=JSON)
        return answer

    return router


def _page(engine: Engine, owner: str) -> str:
    """Return the page of an op; raises ``NotFound`` if it cannot be read."""
    try:
        with engine.registry.pages[owner].open("rb") as file:
            return file.read(LARGEST_PAGE).decode(errors="replace")
    except (KeyError, OSError):
        raise NotFound(f"op {owner}: its page cannot be read any more") from None


def contract_text(engine: Engine, op: Op) -> bytes:
    """Return the contract of an op as JSON."""
    found = _unless_refused(contract(engine, op), origin(op)[0])
    return found.model_dump_json(exclude_unset=True).encode()


def contract(engine: Engine, op: Op) -> OpContract:
    """Return the contract of an op."""
    lineage: dict[str, Any] = {"of": op.of.name, "derivation": op.derivation} if isinstance(op, DerivedOp) else {}
    if op.parts:
        lineage = {"nodes": [part.name for part in op.parts]}
    if op.parameters:
        digest = op.own_parameters.digest
        lineage |= {"parameters": list(map(_parameter, op.parameters)), "parameters_digest": digest}
    if op.holomorphic:
        lineage |= {"holomorphic": True}
    return OpContract(
        **_summary(op).model_dump(exclude_unset=True),
        **lineage,
        derivations=list(derivations(op)),
        doc=(op.doc or "").strip(),
        source=op.source,
        batching=op.batching_for(op.attrs()),
        batching_varies=op.batching_varies,
        shared=list(op.shared),
        row_calls=[_row_calls(packing) for packing in packings_of(op)[-SHOWN:] if packing.why_not is not None],
        dtypes=list(op.shown_dtypes),
        modes=list(op.modes),
        default_mode={name: {t: engine.default_mode(op, t, None) for t in op.shown_dtypes} for name in OPERATIONS},
        inputs=[_input(slot) for slot in op.inputs],
        outputs=_outputs(op),
        attrs=attrs_schema(op.attrs),
        examples=[OpExample(name=e.name, inputs=dict(e.inputs), attrs=dict(e.attrs)) for e in op.examples],
    )


def _outputs(op: Op) -> list[OutputSlot]:
    always = {slot.name for slot in variant_of(op, {}).outputs}
    optional = {slot.name: {} if slot.name in always else {"optional": True} for slot in op.outputs}
    return [OutputSlot.model_validate(_shown(slot) | optional[slot.name]) for slot in op.outputs]


def _input(slot: Input) -> InputSlot:
    return InputSlot.model_validate(
        {name: value for name, value in _shown(slot).items() if name != "optional" or value}
    )


def _shown(slot: Input | Output) -> dict[str, Any]:
    return vars(slot) | {"dtypes": slot.shown_dtypes, "shape": slot.shown_shape}


def _parameter(each: Parameter) -> ParameterSlot:
    more: dict[str, Any] = {} if each.differentiable else {"differentiable": False}
    more |= {"doc": each.doc} if each.doc else {}
    return ParameterSlot(name=each.name, dtype=each.value.dtype.name, shape=list(each.value.shape), **more)


def _row_calls(packing: PaddedRows) -> RowCalls:
    program, units = packing.program, packing.units
    reason: dict[str, Any] = {"reason": packing.why_not} if packing.why_not else {}
    return RowCalls(
        transforms=[transform.rule for transform in program.transforms],
        mode=packing.mode,
        dtype=program.op.shown_dtype(program.dtype),
        shapes={name: list(unit) for name, unit in zip(program.leaf_names, units, strict=True) if unit is not None},
        rows=1 if packing.why_not else packing.length,
        joined=not packing.why_not,
        **reason,
    )


def attrs_schema(attrs: type[Attrs]) -> dict[str, Any]:
    """Return the JSON Schema of an op's attributes, without class names and the docstring of the base class."""
    dropped = ("title", "description") if attrs is Attrs else ("title",)
    return {key: value for key, value in attrs.model_json_schema().items() if key not in dropped}


def _listed(registry: Registry, op: OpSummary) -> ListedOp:
    """Return a summary with the group of the op."""
    page, group = registry.pages.get(op.name, OWN / f"{op.name}.py"), "numerics"
    if page.parent != OWN or not page.exists():
        group = "yours"
    elif page.with_suffix(".cc").exists():
        group = "native"
    elif op.claim is not None and op.claim.first != "derivative":
        group = "surrogate"
    elif op.mechanism == "register_gradient":
        group = "glue"
    return ListedOp(**op.model_dump(exclude_unset=True), group=group)


def _last_verdicts(engine: Engine) -> dict[str, LastVerdict]:
    """Return the last verdict on each registered op that has one; this reads files."""
    found, ops = dict[str, LastVerdict](), engine.registry.ops
    for name, check in engine.verdicts.checks.by_op().items():
        if name in ops:
            changed = engine.verdicts.standing(ops[name], check).changed
            lapsed: dict[str, Any] = {"changed": changed} if changed else {}
            found[name] = LastVerdict.model_validate({"verdict": check.verdict, "age_s": check.age_s, **lapsed})
    return found


def verdict_on(engine: Engine, op: Op) -> OpVerdict:
    """Return the last verdict on an op; raises ``NotFound`` if there is none. This reads files."""
    base = origin(op)[0]
    check, changed = engine.verdicts.look(base)
    if check is None:
        raise NotFound(f"op {base.name} has no verdict: POST /v1/ops/{base.name}/check without checks, modes or dtypes")
    at = datetime.fromtimestamp(check.at, UTC)
    return OpVerdict(
        op=base.name,
        is_current=not changed,
        changed=list(changed),
        at=at,
        age_s=check.age_s,
        modes=list(base.modes),
        **{name: getattr(check, name) for name in ("verdict", "seed", "devices", "origin")},
    )


def _unless_refused(summary: Summary, op: Op | None) -> Summary:
    """Return a summary, with the reason why the op does not run now if that is so."""
    name = refused(op) if op else ""
    if not name or (refusal := REFUSED.get(name)) is None:
        return summary
    return summary.model_copy(update={"available": False, "reason": f"op {name}: {refusal.reason}"})


def _with_fault(op: OpSummary, why: str | None) -> OpSummary:
    """Return a summary, with the reason why the op is stale if it is."""
    return op if why is None else op.model_copy(update={"stale": True, "reason": why})


def _summary(op: Op) -> OpSummary:
    claim, summary = op.claim(op.attrs()), None
    if has_order(op, claim, 1):
        second = None if claim.second is None else _kind(claim.second)
        summary = ClaimSummary(first=_kind(claim.first), second=second, linear=claim.linear)
    return OpSummary(name=op.name, summary=op.summary, mechanism=op.mechanism, claim=summary, available=True)


def _kind(claim: Derivative | Surrogate | Formula) -> ClaimKind:
    match claim:
        case Derivative():
            return "derivative"
        case Surrogate():
            return "surrogate"
        case Formula():
            return "formula"
