"""The last checks, as two workers keep them in one file."""

import json
import time
from pathlib import Path

from app.kept.last_checks import GRAPHS, LastCheck, LastChecks


def check(verdict: str, at: float | None = None) -> LastCheck:
    return LastCheck(verdict, time.time() if at is None else at, 0, ["cpu"], {"page": "0"})


def verdicts(found: LastChecks) -> dict[str, str]:
    return {op: last.verdict for op, last in found.by_op().items()}


def test_workers_that_share_a_file_know_the_newest_verdicts_of_all(tmp_path: Path) -> None:
    one, other = (LastChecks(tmp_path / "last") for _ in range(2))
    assert verdicts(one) == {}
    one.note("square", check("pass"))
    other.note("relu", check("inconclusive"))
    assert verdicts(one) == verdicts(other) == {"square": "pass", "relu": "inconclusive"}
    time.sleep(0.002)
    other.note("square", check("fail"))
    assert verdicts(one) == verdicts(LastChecks(tmp_path / "last")) == {"square": "fail", "relu": "inconclusive"}
    one.note("relu", check("pass"))
    assert verdicts(other) == {"square": "fail", "relu": "pass"}
    assert 0 <= one.by_op()["relu"].age_s < 60


def test_a_file_that_was_cut_off_or_cannot_be_written_costs_only_the_verdicts_of_others(tmp_path: Path) -> None:
    one, other = (LastChecks(tmp_path / "last") for _ in range(2))
    one.note("square", check("pass"))
    for broken in (b'{"square": ["pa', b"[1]", b'{"square": 3}', b'{"square": ["good", 1, 0, [], {}]}'):
        (tmp_path / "last").write_bytes(broken)
        assert verdicts(one) == {"square": "pass"}
        assert verdicts(other) == {}
    one.note("relu", check("pass"))
    assert verdicts(other) == {"square": "pass", "relu": "pass"}
    (tmp_path / "none").touch()
    lost = LastChecks(tmp_path / "none" / "last")
    lost.note("square", check("fail"))
    assert verdicts(lost) == {"square": "fail"}


def test_the_oldest_verdicts_on_posted_graphs_go_first_and_those_on_ops_stay(tmp_path: Path) -> None:
    full = {"square": check("pass", 1.0)} | {f"graph.{i:04}": check("pass", 2.0 + i) for i in range(GRAPHS)}
    (tmp_path / "last").write_text(json.dumps({op: list(last) for op, last in full.items()}))
    one = LastChecks(tmp_path / "last")
    one.note("graph.new", check("pass"))
    assert full.keys() - verdicts(one).keys() == {"graph.0000"}
    assert {"square", "graph.new"} <= verdicts(LastChecks(tmp_path / "last")).keys()
