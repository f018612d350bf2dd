"""The last verdicts, as two workers keep them in one file."""

import time
from pathlib import Path

from app.execution.last_checks import LastChecks


def verdicts(found: LastChecks) -> dict[str, str]:
    return {op: last.verdict for op, last in found.by_op().items()}


def test_workers_that_share_a_file_know_the_newest_verdicts_of_all(tmp_path: Path) -> None:
    one, other = (LastChecks(tmp_path / "last") for _ in range(2))
    assert verdicts(one) == {}
    one.note("square", "pass")
    other.note("relu", "inconclusive")
    assert verdicts(one) == verdicts(other) == {"square": "pass", "relu": "inconclusive"}
    time.sleep(0.002)
    other.note("square", "fail")
    assert verdicts(one) == verdicts(LastChecks(tmp_path / "last")) == {"square": "fail", "relu": "inconclusive"}
    one.note("relu", "pass")
    assert verdicts(other) == {"square": "fail", "relu": "pass"}
    assert 0 <= one.by_op()["relu"].age_s < 60


def test_a_worker_alone_needs_no_file() -> None:
    alone = LastChecks()
    alone.note("square", "pass")
    assert verdicts(alone) == {"square": "pass"}
    assert verdicts(LastChecks()) == {}


def test_a_file_that_was_cut_off_or_cannot_be_written_costs_only_the_verdicts_of_others(tmp_path: Path) -> None:
    one, other = (LastChecks(tmp_path / "last") for _ in range(2))
    one.note("square", "pass")
    for broken in (b'{"square": ["pa', b"[1]", b'{"square": 3}'):
        (tmp_path / "last").write_bytes(broken)
        assert verdicts(one) == {"square": "pass"}
        assert verdicts(other) == {}
    one.note("relu", "pass")
    assert verdicts(other) == {"square": "pass", "relu": "pass"}
    lost = LastChecks(tmp_path / "none" / "last")
    lost.note("square", "fail")
    assert verdicts(lost) == {"square": "fail"}
