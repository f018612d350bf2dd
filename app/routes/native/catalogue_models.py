"""The models of the catalogue of ops and of their contracts."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.routes.native.check_models import Origin, Verdict
from ops import Batching, Mode

ClaimKind = Literal["derivative", "surrogate", "formula"]
Group = Literal["yours", "surrogate", "numerics", "native", "glue"]


class ClaimSummary(BaseModel):
    """The gradient's claim, with the default attributes."""

    first: ClaimKind = Field(description="The derivative of forward, of a surrogate function, or a formula.")
    second: ClaimKind | None = Field(
        description="The derivative of the op's own vjp, of a surrogate, or a formula; null: there is no second order."
    )
    linear: bool = Field(description="Whether the gradient is linear in the cotangent; if not, there is no jvp.")


class OpSummary(BaseModel):
    """A summary of one op."""

    name: str
    summary: str
    mechanism: str = Field(description="How the op gets its gradient, such as custom_gradient.")
    claim: ClaimSummary | None = Field(description="Null for an op that is unavailable, or has no derivative.")
    available: bool
    stale: bool = Field(default=False, description="The file has an error: its last good version is served.")
    reason: str | None = Field(default=None, description="Why the op is unavailable, or stale.")


class LastVerdict(BaseModel):
    """The verdict of a check of the whole op."""

    model_config = ConfigDict(from_attributes=True)

    verdict: Verdict
    age_s: float = Field(description="Seconds since the check ended.")
    changed: list[str] = Field(
        default=[], description="What has changed since, so that the verdict has lapsed; absent: nothing."
    )


class OpVerdict(BaseModel):
    """The last check of the whole op, and what it was a check of."""

    op: str = Field(description="The op, or the one that it is derived from.")
    verdict: Verdict
    is_current: bool = Field(description="Whether nothing has changed since the check.")
    changed: list[str] = Field(description="What has changed since: names of the origin.")
    at: datetime = Field(description="When the check ended.")
    age_s: float = Field(description="Seconds since then.")
    seed: int = Field(description="The seed of the check.")
    devices: list[str] = Field(description="The devices that it ran on.")
    modes: list[str] = Field(description="The modes that it ran in.")
    origin: Origin


class ListedOp(OpSummary):
    """A summary of one op in the list of all."""

    group: Group = Field(
        description="yours: from a plug-in folder; surrogate: its gradient is not the derivative; numerics: its "
        "gradient is the derivative, written to be accurate; native: in C++; glue: TensorFlow's own op and gradient."
    )
    last_check: LastVerdict | None = Field(
        default=None, description="The last check of the whole op by this service; absent: none since it started."
    )


class OpList(BaseModel):
    """All ops, sorted by name."""

    ops: list[ListedOp]


class OutputSlot(BaseModel):
    """One output: its dtypes (several for the op's type variable) and its symbolic shape."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    dtypes: list[str]
    shape: list[str | int] = Field(description='A symbol is one dimension, "..." any number of dimensions.')
    differentiable: bool
    doc: str
    optional: bool = Field(
        default=False, description="Whether a request may leave it out; of an output: it belongs to such an input."
    )


class InputSlot(OutputSlot):
    """One input: the fields of an output, the domain that checks sample, and the points that they avoid."""

    domain: tuple[float, float]
    kinks: list[float]
    poles: list[float]


class ParameterSlot(BaseModel):
    """One parameter."""

    name: str
    dtype: str
    shape: list[int]
    differentiable: bool = Field(default=True, description="Only if it has no derivatives.")
    doc: str = Field(default="", description="Only if there is one.")


class OpExample(BaseModel):
    """One example: real inputs, as lists."""

    name: str
    inputs: dict[str, Any]
    attrs: dict[str, Any]


class RowCalls(BaseModel):
    """What is known of rows of one shape: how many share a call, or why none do."""

    transforms: list[str] = Field(description="The rules of the derivative, in order; none for forward.")
    mode: Mode
    dtype: str
    shapes: dict[str, list[int]] = Field(description="The shape of one row of each input and direction.")
    rows: int = Field(description="The rows of each call; fewer are padded.")
    joined: bool = Field(description="Whether rows of several requests share a call.")
    reason: str | None = Field(default=None, description="Why they share none.")


class OpContract(OpSummary):
    """The full contract of an op."""

    of: str | None = Field(default=None, description="The op that a derived op differentiates.")
    derivation: list[str] = Field(default=[], description="The derivations that lead from the registered op to it.")
    derivations: list[str] = Field(description="The derivations of the op that are ops, as in {op}.vjp.")
    nodes: list[str] = Field(default=[], description="The ops that a graph composes, in order; none of other ops.")
    doc: str = Field(description="Formulas, kinks and poles, and the behaviour there.")
    source: str
    batching: Batching = Field(description="Which rows are independent, with the default attributes.")
    batching_varies: bool = Field(description="Whether the batching depends on the attributes.")
    shared: list[str] = Field(description="The inputs without rows, which all rows use.")
    row_calls: list[RowCalls] = Field(description="The newest shapes of rows that this process has tried.")
    dtypes: list[str] = Field(description="The dtypes of the op's type variable, the default first.")
    modes: list[Mode] = Field(description="The modes in which TensorFlow can run the op.")
    default_mode: dict[str, dict[str, Mode]] = Field(description="By operation and dtype.")
    inputs: list[InputSlot]
    outputs: list[OutputSlot]
    parameters: list[ParameterSlot] = Field(
        default=[], description="The inputs whose values the server has, in order; absent if there are none."
    )
    parameters_digest: str | None = Field(default=None, description="The digest of the page's own values of them.")
    holomorphic: bool = Field(default=False, description="Only if the op claims it: its Jacobian is complex.")
    attrs: dict[str, Any] = Field(description="JSON Schema of the attributes.")
    examples: list[OpExample]
