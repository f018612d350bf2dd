"""What requests and answers of the gradient checks look like."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.gradcheck.checks import CHECKS
from app.requests.models import MAX_NAMES, Answer, Cotangents, Tensors
from ops import Mode

CheckName = Literal[
    "contract",
    "batching",
    "derivative",
    "second",
    "linearity",
    "adjoint",
    "symmetry",
    "modes",
    "dtypes",
    "finite",
    "determinism",
]
Verdict = Literal["pass", "fail", "inconclusive"]
Number = Annotated[float | Literal["NaN", "Infinity", "-Infinity"], Field(title="Number")]
Dtypes = Annotated[list[str], Field(min_length=1, max_length=MAX_NAMES)]

assert set(CheckName.__args__) == set(CHECKS)  # pyright: ignore[reportAttributeAccessIssue] - a Literal has them


class Tolerances(BaseModel):
    """What every comparison of numbers is widened by, on top of the error bar and of rounding."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    absolute: float = Field(default=0.0, ge=0)
    relative: float = Field(default=0.0, ge=0, description="As a part of the number that is expected.")


class _How(BaseModel):
    """How a check is made."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dtypes: Dtypes | None = Field(default=None, description="Float dtypes to check; omitted: all of the op's.")
    modes: list[Mode] | None = Field(default=None, min_length=1, description="Omitted: all of the op's.")
    orders: list[Literal[1, 2]] = Field(default=[1, 2], min_length=1, max_length=2)
    checks: list[CheckName] | None = Field(default=None, min_length=1, description="Which; omitted: all.")
    device: str | None = Field(default=None, description="cpu or gpu:N; omitted: all, compared with the default one.")
    seed: int = Field(default=0, ge=0, lt=1 << 32, description="Of all that is drawn: same seed, same report.")
    tolerances: Tolerances = Tolerances()


class CheckRequest(_How):
    """What to check of one op, and where."""

    inputs: Tensors | None = Field(
        default=None, description="The point; omitted: the op's examples, and points drawn from its domain."
    )
    attrs: Annotated[dict[str, Any], Field(max_length=MAX_NAMES)] | None = Field(
        default=None, description="The op's attributes; omitted: those of its examples, in turn."
    )


class ChecksRequest(_How):
    """Which ops to check."""

    ops: list[str] | None = Field(default=None, min_length=1, max_length=1024, description="Omitted: all.")


class VerifyRequest(BaseModel):
    """A point, cotangents and the gradients that somebody else found there."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    inputs: Tensors = Field(description="The op's inputs, by name.")
    attrs: Annotated[dict[str, Any], Field(max_length=MAX_NAMES)] = Field(default={}, description="Its attributes.")
    dtype: str | None = Field(
        default=None, description="The dtype in which your gradients were computed; omitted: the op's first."
    )
    mode: Mode | None = Field(default=None, description="How the op is run; omitted: the catalogue's default_mode.")
    device: str | None = Field(default=None, description="cpu or gpu:N; omitted: the server's choice.")
    cotangents: Cotangents = None
    gradients: Tensors = Field(min_length=1, description="Your gradients, by input.")
    tolerances: Tolerances = Tolerances()


class WorstElement(BaseModel):
    """The number that is farthest off, in error bars."""

    index: list[int] | None = Field(description="Its place in the input; null: along a random direction.")
    x: Number | None = Field(description="The input there.")
    analytic: Number = Field(description="What the op returns.")
    numeric: Number = Field(description="What it should be.")
    error_bar: Number = Field(description="By how much they may differ.")
    absolute: Number
    relative: Number
    ulps: Number = Field(description="In units in the last place of what it should be.")


class CheckEntry(BaseModel):
    """What one check found of one thing."""

    check: CheckName
    verdict: Literal["pass", "fail", "inconclusive", "skipped"]
    sentence: str
    order: int | None = Field(description="0: values, 1: gradients, 2: their gradients.")
    output: str | None
    input: str | None
    attrs: dict[str, Any]
    mode: str
    dtype: str
    device: str
    points: int = Field(description="Numbers that were compared.")
    evaluations: int = Field(description="Values that the numeric derivative asked for.")
    seconds: float
    inconclusive: dict[str, int] = Field(description="How many numbers told nothing, by reason.")
    worst: WorstElement | None


class CheckAnswer(Answer):
    """The report on one op."""

    op: str
    verdict: Verdict
    sentence: str
    seed: int
    points: int
    evaluations: int
    seconds: float
    checks: list[CheckEntry]


class WorstGradient(BaseModel):
    """The number of your gradient that is farthest off."""

    index: list[int] | None
    x: Number | None
    yours: Number
    expected: Number
    error_bar: Number = Field(description="By how much they may differ, for rounding in your dtype.")
    absolute: Number
    relative: Number
    ulps: Number = Field(description="In units in the last place of your dtype.")


class Block(BaseModel):
    """Rows of the leading axis, from ``start`` to before ``stop``."""

    start: int
    stop: int
    verdict: Verdict
    wrong: int
    ulps: Number


class VerifiedGradient(BaseModel):
    """The verdict on your gradient of one input."""

    verdict: Literal["pass", "fail", "inconclusive", "skipped"]
    sentence: str
    elements: int
    wrong: int
    worst: WorstGradient | None
    blocks: list[Block]


class VerifyAnswer(Answer):
    """The verdict on your gradients."""

    op: str
    verdict: Verdict
    sentence: str
    dtype: str
    against: str = Field(description="The dtype in which the op answered.")
    gradients: dict[str, VerifiedGradient]


class ChecksAnswer(Answer):
    """One event of the stream; ``event`` says which fields it has."""

    event: Literal["start", "progress", "report", "summary", "error"]
    ops: list[str] = Field(default=[], description="start: the ops that will be checked.")
    unavailable: list[dict[str, str]] = Field(default=[], description="start: ops that are not served, and why.")
    steps: int = Field(default=0, description="start, progress: how many steps there are.")
    op: str = Field(default="", description="progress: the op of the step that begins.")
    check: str = Field(default="", description="progress: its check.")
    done: int = Field(default=0, description="progress: steps that are done.")
    report: CheckAnswer | None = Field(default=None, description="report: of one op.")
    verdict: Verdict | None = Field(default=None, description="summary: of all.")
    pass_: int = Field(default=0, alias="pass", description="summary: how many ops pass.")
    fail: int = Field(default=0, description="summary: how many fail.")
    inconclusive: int = Field(default=0, description="summary: of how many nothing can be told.")
    seconds: float = Field(default=0.0, description="summary.")
    problem: dict[str, Any] | None = Field(default=None, description="error: why the stream ends early.")
