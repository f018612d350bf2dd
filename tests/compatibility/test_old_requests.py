"""Old requests get answers that keep what they had: new fields may appear, none may vanish or change its type.

``answers/VERSION.json`` has requests with the answers of that version. Those of 0.1.0 to 0.3.0 are the examples that
the pages of these versions showed; ``python -m tests.compatibility record`` writes those of the version in the making.
"""

import copy
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.version import Version

from tests.compatibility.promised import differences
from tests.compatibility.replaying import replay
from tests.compatibility.requests import REQUESTS

ANSWERS = Path(__file__).parent / "answers"
VERSIONS = sorted((path.stem for path in ANSWERS.glob("*.json")), key=Version)


def recorded(version: str) -> list[dict[str, Any]]:
    return json.loads((ANSWERS / f"{version}.json").read_text())


@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", VERSIONS)
def test_old_requests_are_answered_as_before(version: str, is_slow: bool, client: httpx.Client) -> None:
    entries = [entry for entry in recorded(version) if entry.get("is_slow", False) is is_slow]
    faults = [
        f"{entry['method']} {entry['path']} {json.dumps(entry.get('body'))[:200]}: {difference}"
        for entry, answer in replay(client, entries)
        for difference in differences(entry["answer"], answer, values=entry.get("values", True))
    ]
    assert faults == []


def test_the_newest_answers_are_those_of_the_requests() -> None:
    entries = recorded(VERSIONS[-1])
    assert [{name: value for name, value in entry.items() if name != "answer"} for entry in entries] == REQUESTS


ANSWER = {
    "status": 200,
    "body": {
        "y": {"dtype": "float32", "shape": [2], "data": [1.5, "NaN"]},
        "modes": ["graph", "xla"],
        "ops": [{"name": "a", "group": "glue"}],
        "id": "1",
        "detail": "a text",
        "absent": None,
    },
}


@pytest.mark.parametrize(
    ("path", "value", "is_kept"),
    [
        (["status"], 201, False),
        (["body", "y"], None, False),
        (["body", "y", "dtype"], "float64", False),
        (["body", "y", "shape"], [1, 2], False),
        (["body", "y", "data"], [1.5 + 2**-20, "NaN"], True),
        (["body", "y", "data"], [1.5 + 2**-17, "NaN"], False),
        (["body", "y", "data"], [1.5, "Infinity"], False),
        (["body", "y", "data"], [[1.5, "NaN"]], False),
        (["body", "modes"], ["graph", "new", "xla"], True),
        (["body", "modes"], ["xla", "graph"], False),
        (["body", "modes"], ["graph"], False),
        (["body", "ops"], [{"name": "new"}, {"name": "a", "group": "glue", "new": 1}], True),
        (["body", "ops"], [{"name": "a"}], False),
        (["body", "ops"], [], False),
        (["body", "id"], "2", True),
        (["body", "id"], 2, False),
        (["body", "detail"], "another", True),
        (["body", "absent"], {}, False),
        (["body", "new"], 1, True),
    ],
)
def test_what_a_promise_allows(path: list[str], value: object, is_kept: bool) -> None:
    now: Any = copy.deepcopy(ANSWER)
    place = now
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert (differences(ANSWER, now) == []) is is_kept
    if "new" not in path:
        del place[path[-1]]
        assert differences(ANSWER, now) == [f"{'.'.join(path)}: is gone"]
