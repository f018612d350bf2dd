"""The models of the gradient checks: requests, responses, and the events of a stream, with examples."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, RootModel
from pydantic_core.core_schema import literal_schema

from app.gradcheck.checks import CHECKS
from app.requests.answers import OperationAnswer, Problem
from app.requests.models import MAX_NAMES, Attributes, Device, Dtype, Parameters, Tensors
from app.routes.native.health import UnavailableOp
from app.routes.native.points import PointRequest
from ops import COMPLEX, FLOATS, MODES, Mode

Verdict = Literal["pass", "fail", "error", "inconclusive"]
EntryVerdict = Literal["pass", "fail", "error", "inconclusive", "skipped"]
Number = Annotated[float | Literal["NaN", "Infinity", "-Infinity"], Field(title="Number")]
CheckName = Annotated[str, GetPydanticSchema(lambda source, handler: literal_schema([*CHECKS]))]
FloatDtype = Annotated[str, GetPydanticSchema(lambda source, handler: literal_schema([*FLOATS, *COMPLEX]))]
Origin = Annotated[
    dict[str, str],
    Field(
        description="What computed it: the version of Pullback and of TensorFlow, and the digests (SHA-256) of the "
        "page, of its library, of the modules beside it, of its parameters, and of the nodes of a graph."
    ),
]
Dtypes = Annotated[list[FloatDtype], Field(min_length=1, max_length=len(FLOATS))]
_PLACE: dict[str, Any] = {
    "attrs": {},
    "mode": "graph",
    "dtype": "float64",
    "device": "cpu",
    "order": 1,
    "output": "y",
    "input": "x",
}
_COUNTS = {"points": 259, "compared": 259, "evaluations": 31598, "seconds": 0.2}
_DIFFERS = "dx[2] at x = 1, dy = 1 is 2, but the numeric derivative of forward is 3 ± 5.1e-14; 259 of 259 points wrong"
_AT_WORST: dict[str, Any] = {
    **{"index": [2], "x": 1.0, "analytic": 2.0, "numeric": 3.0, "error_bar": 5.1e-14},
    **{"absolute": 1.0, "relative": 0.333, "ulps": 2.3e15},
}
_FAILED: dict[str, Any] = {
    **{"check": "derivative", "verdict": "fail", "sentence": _DIFFERS, **_PLACE, **_COUNTS, "inconclusive": {}},
    "digits": {},
    **{"worst": _AT_WORST, "reproduce": "pullback call cube vjp x=1 dy=1 --dtype float64 --mode graph"},
    **{
        "note": False,
        "shows": "gradients.x",
        "point": {"inputs": {"x": 1.0}, "cotangents": {"y": 1.0}},
        "places": [_PLACE],
    },
}
_COVERED: dict[str, Any] = {"check": "derivative", "order": 1, "dtype": "float64", "points": 259, "compared": 259}
_COVERED["digits"] = {}
_ORIGIN = {"version": "0.4.0", "tensorflow": "2.21.0", "page": "9f86d081884c7d65"}
_REPORT: dict[str, Any] = {
    **{"origin": _ORIGIN, "modes": ["graph"], "devices": ["cpu"]},
    **{"op": "cube", "verdict": "fail", "sentence": "cube: 1 of 1 check failed: derivative", "seed": 0, "points": 259},
    **{"evaluations": 31598, "seconds": 0.2, "unfinished": 0, "coverage": [_COVERED], "checks": [_FAILED]},
}
REPORTS: dict[str, Any] = {"examples": [_REPORT]}

_WRONG_2 = "your dx[2] at x = 3 is 6.54, but op square in float64 is 6 ± 1.1e-05; 1 of 3 points wrong"
_WORST: dict[str, Any] = {"index": [2], "x": 3.0, "yours": 6.54, "expected": 6.0, "error_bar": 1.1e-5}
_VERIFIED: dict[str, Any] = {
    **{"verdict": "fail", "sentence": _WRONG_2, "elements": 3, "wrong": 1},
    "worst": {**_WORST, "absolute": 0.54, "relative": 0.09, "ulps": 1132462.0},
    "blocks": [{"start": 2, "stop": 3, "verdict": "fail", "wrong": 1, "ulps": 1132462.0}],
}
VERIFICATIONS: dict[str, Any] = {
    "examples": [
        {"op": "square", "verdict": "fail", "sentence": f"{_WRONG_2}.", "dtype": "float32"}
        | {"against": "float64", "gradients": {"x": _VERIFIED}}
    ]
}


class Tolerances(BaseModel):
    """Tolerances that widen every comparison, in addition to the error bar and rounding."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    absolute: float = Field(default=0.0, ge=0)
    relative: float = Field(default=0.0, ge=0, description="As a fraction of the expected number.")


class _CheckOptions(BaseModel):
    """The options of a check."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dtypes: Dtypes | None = Field(default=None, description="Float dtypes to check; omitted: all.")
    modes: list[Mode] | None = Field(
        default=None, min_length=1, max_length=len(MODES), description="Modes to check; omitted: all."
    )
    orders: list[Literal[1, 2, 3, 4]] = Field(
        default=[1, 2], min_length=1, max_length=4, description="Orders of derivatives to check; 3 and 4 take long."
    )
    checks: list[CheckName] | None = Field(
        default=None, min_length=1, max_length=len(CHECKS), description="Checks to run; omitted: all."
    )
    device: Device | None = Field(default=None, description="cpu or gpu:N; omitted: all, against the default device.")
    seed: int = Field(default=0, ge=0, lt=1 << 32, description="Seed of all random draws: same seed, same report.")
    tolerances: Tolerances = Tolerances()
    strict_claims: bool = Field(default=False, description="Fail for doubtful declarations, which are notes otherwise.")
    budget_s: float | None = Field(
        default=None, gt=0, le=86400, description="Seconds after which the checks left are not run; omitted: no limit."
    )


class CheckRequest(_CheckOptions):
    """The checks to run on one op, and the point to check."""

    WHY_ONE_POINT: ClassVar[str] = "a check examines one point of the request, or the points that it draws without any"
    inputs: Tensors | None = Field(
        default=None, description="The point; omitted: the op's examples and points drawn from its domain."
    )
    attrs: Annotated[Attributes, Field(max_length=MAX_NAMES)] | None = Field(
        default=None, description="The op's attributes; omitted: those of each example in turn."
    )
    parameters: Parameters = None


class ChecksRequest(_CheckOptions):
    """The ops to check."""

    ops: list[str] | None = Field(default=None, min_length=1, max_length=1024, description="Omitted: all ops.")
    findings: bool = Field(default=False, description="Send each finding as an event when its step has ended.")


class VerifyRequest(PointRequest):
    """A point, cotangents, and your gradients at that point."""

    dtype: Dtype | None = Field(
        default=None, description="The dtype in which your gradients were computed; omitted: the op's first."
    )
    gradients: Tensors = Field(min_length=1, description="Your gradients, by input.")
    tolerances: Tolerances = Tolerances()


class WorstElement(BaseModel):
    """The element with the largest error, in error bars."""

    index: list[int] | None = Field(description="Its index in the input; null: along a random direction.")
    x: Number | None = Field(description="The input at that index.")
    analytic: Number = Field(description="The value that the op returns.")
    numeric: Number = Field(description="The expected value.")
    error_bar: Number = Field(description="The largest allowed difference.")
    absolute: Number
    relative: Number
    ulps: Number = Field(description="The error in units in the last place of the expected value.")


class CheckPlace(BaseModel):
    """A place where a finding holds."""

    attrs: dict[str, Any]
    mode: str
    dtype: str
    device: str
    order: int | None
    output: str | None
    input: str | None


class CheckedPoint(BaseModel):
    """The tensors of a call, by field and by name, as nested lists."""

    inputs: dict[str, Any]
    cotangents: dict[str, Any] = {}
    vectors: dict[str, Any] = {}
    tangents: dict[str, Any] = {}


class CheckEntry(BaseModel):
    """One finding of one check, or several with the same sentence; then all fields are those of the first place."""

    check: CheckName
    verdict: EntryVerdict = Field(description="error: the checker failed, which says nothing about the op.")
    sentence: str
    order: int | None = Field(description="0: values, 1: gradients, 2 to 4: derivatives of that order.")
    output: str | None
    input: str | None
    attrs: dict[str, Any]
    mode: str
    dtype: str
    device: str
    points: int = Field(description="Numbers to compare.")
    compared: int = Field(description="Numbers that could be compared.")
    evaluations: int = Field(description="Evaluations for the numeric derivative.")
    seconds: float
    inconclusive: dict[str, int] = Field(description="Inconclusive numbers, counted by reason.")
    digits: dict[str, int] = Field(description="Right numbers, counted by the digits that the error bar leaves.")
    worst: WorstElement | None
    reproduce: str | None = Field(description="A command that returns the analytic number; or why there is none.")
    shows: str | None = Field(description="What in the answer to that command is the number.")
    point: CheckedPoint | None = Field(description="The tensors of that command; null if there is none.")
    note: bool = Field(description="Whether the finding is a note on a doubtful declaration of the op.")
    places: list[CheckPlace] = Field(description="All places of the finding; the counts and seconds are their sums.")


class Coverage(BaseModel):
    """How many numbers of a check, of one order and dtype, could be compared, and to how many digits."""

    check: CheckName
    order: int | None
    dtype: str
    points: int = Field(description="Numbers to compare.")
    compared: int = Field(description="Numbers that could be compared.")
    digits: dict[str, int] = Field(description="Right numbers, counted by the digits that the error bar leaves.")


class CheckAnswer(OperationAnswer):
    """The report on one op."""

    model_config = ConfigDict(json_schema_extra=REPORTS)

    op: str
    verdict: Verdict
    sentence: str
    origin: Origin
    modes: list[str] = Field(description="The modes that were checked.")
    devices: list[str] = Field(description="The device that was checked, and those that were compared with it.")
    seed: int
    points: int
    evaluations: int
    seconds: float
    unfinished: int = Field(description="Checks not run, because the time was over.")
    coverage: list[Coverage] = Field(description="By check, order and dtype.")
    checks: list[CheckEntry]


class WorstGradient(BaseModel):
    """The element of your gradient with the largest error."""

    index: list[int] | None
    x: Number | None
    yours: Number
    expected: Number
    error_bar: Number = Field(description="The largest allowed difference, from rounding in your dtype.")
    absolute: Number
    relative: Number
    ulps: Number = Field(description="The error in units in the last place of your dtype.")


class Block(BaseModel):
    """Rows of the leading axis, from ``start`` up to but not including ``stop``."""

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


class VerifyAnswer(OperationAnswer):
    """The verdict on your gradients."""

    model_config = ConfigDict(json_schema_extra=VERIFICATIONS)

    op: str
    verdict: Verdict
    sentence: str
    dtype: str
    against: str = Field(description="The dtype that the op computed in.")
    gradients: dict[str, VerifiedGradient]


class _Event(BaseModel):
    """An event of the stream."""

    model_config = ConfigDict(extra="forbid")


class StartEvent(_Event):
    """The first event: what will be checked."""

    event: Literal["start"]
    ops: list[str] = Field(description="The ops to check.")
    unavailable: list[UnavailableOp] = Field(description="The requested ops that are not served, and why.")
    steps: int = Field(description="The number of steps.")


class ProgressEvent(_Event):
    """A step starts."""

    event: Literal["progress"]
    op: str = Field(description="The op of the step.")
    check: CheckName = Field(description="The check of the step.")
    done: int = Field(description="The number of finished steps.")
    steps: int = Field(description="The number of steps.")
    left_s: float | None = Field(description="About how many seconds are left; null: not known yet.")


class FindingEvent(_Event):
    """A finding of a step that has ended; only if the request has `findings`. The report repeats it."""

    event: Literal["finding"]
    op: str = Field(description="The op of the step.")
    finding: CheckEntry


class ReportEvent(_Event):
    """All steps of an op have ended."""

    event: Literal["report"]
    report: CheckAnswer = Field(description="The report on the op.")


class SummaryEvent(_Event):
    """The last event of a complete stream; each count is a number of ops."""

    event: Literal["summary"]
    verdict: Verdict = Field(description="The verdict on all ops.")
    pass_: int = Field(alias="pass")
    fail: int
    error: int = Field(description="Ops where the checker failed.")
    inconclusive: int
    unfinished: int = Field(description="Ops with checks not run: out of time.")
    seconds: float = Field(description="The duration.")


class ErrorEvent(_Event):
    """The last event of a stream that ends early."""

    event: Literal["error"]
    problem: Problem = Field(description="The reason why the stream ends early.")


AnyEvent = StartEvent | ProgressEvent | FindingEvent | ReportEvent | SummaryEvent | ErrorEvent


class ChecksAnswer(RootModel[Annotated[AnyEvent, Field(discriminator="event")]]):
    """One event of the stream."""
