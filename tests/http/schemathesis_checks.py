"""Our own checks of Schemathesis: the reasons of refusals, and events, whose schemas it does not read."""

import json
import re
from typing import Any

import jsonschema
import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

# Most generated deadlines are 1 ms, which 504 ends before anything else is checked. Gradient checks take seconds; they
# get a short deadline, which ends each with the findings so far.
DEADLINE_MS, CHECKS_DEADLINE_MS = 60_000, 200

# What a schema can say, so that a request which is valid by its schema is never refused for it.
SAYABLE = re.compile(
    r"expected a|expected an|expected one of|unknown field|missing field|too many (items|fields|dimensions)|"
    r"unknown key in a tensor|tensor (has|nested)|invalid dimension|nothing selected|duplicate name|unknown device|"
    r"no \w+ given|a batched vjp needs"
)
INTEGRAL = re.compile(r"-?\d+\.0|-?\d(\.\d+)?e\+\d+")
# What the schemas of one op say, but not those of all ops.
OF_ONE_OP = re.compile(
    r"unknown name|missing input|does not accept this dtype|has no kernel for this mode|not elementwise"
)


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Replace a valid deadline, or none."""
    del context, kwargs
    name, is_check = "Pullback-Deadline-Ms", case.path.endswith(("/check", "/checks"))
    sent = str((case.headers or {}).get(name, "1"))
    if sent.isascii() and sent.isdigit() and int(sent) and len(sent) < 19:
        case.headers = {**(case.headers or {}), name: str(CHECKS_DEADLINE_MS if is_check else DEADLINE_MS)}


@schemathesis.check
def refusals_are_beyond_schemas(ctx: CheckContext, response: Response, case: Case) -> None:
    """Fail if a request that is valid by its schema is refused for what a schema can say."""
    if response.status_code != 422 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    is_of_one_op = "{op}" not in case.path and not case.path.startswith("/v1/graphs")
    for error in response.json()["errors"]:
        # For a schema 1.0 is an integer, for the service it is not.
        if INTEGRAL.fullmatch(error["got"]):
            continue
        is_of_attrs = not is_of_one_op and error["loc"][:1] == ["attrs"]
        is_sayable = SAYABLE.match(error["message"]) or (is_of_one_op and OF_ONE_OP.search(error["message"]))
        assert is_of_attrs or not is_sayable, f"a schema can say this: {error}"


@schemathesis.check
def events_match_their_schema(ctx: CheckContext, response: Response, case: Case) -> None:
    """Fail if an event of /v1/checks does not match its schema, or its name in the frame is another."""
    if case.path != "/v1/checks" or response.status_code != 200:
        return
    schemas = case.operation.schema.raw_schema["components"]["schemas"]
    validator = jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/ChecksAnswer", "components": {"schemas": schemas}}
    )
    text = response.text
    if response.headers["content-type"] == ["text/event-stream"]:
        frames = [frame.splitlines() for frame in text.strip().split("\n\n")]
        for event, data in frames:
            assert json.loads(data.removeprefix("data: "))["event"] == event.removeprefix("event: ")
        text = "\n".join(data.removeprefix("data: ") for _, data in frames)
    for line in text.splitlines():
        validator.validate(json.loads(line))
