"""The order of checks, and the estimate of the time that is left."""

import pytest

from app.gradcheck import pace
from app.gradcheck.checks import CHECKS
from app.gradcheck.options import Options
from app.gradcheck.pace import SHARES, Pace, in_order
from ops import discover
from tests.gradcheck.checking import CPU, planned

OPS = discover().ops


def test_every_check_has_a_share() -> None:
    assert set(SHARES) == set(CHECKS)


def test_the_gradients_come_before_the_modes_whatever_the_attributes() -> None:
    report, steps = planned(OPS["clip_gradient"], Options(CPU))
    ordered = in_order(report)
    assert sorted(map(id, ordered)) == sorted(map(id, steps))
    checks = [step.check for step in ordered]
    assert checks == sorted(checks, key=[*SHARES].index)
    assert checks[0] == "contract"
    assert [step.target.has_example for step in ordered if step.check == "derivative"] == sorted(
        (step.target.has_example for step in steps if step.check == "derivative"), reverse=True
    )


def test_each_op_goes_on_as_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    one, _ = planned(OPS["square"], Options(CPU), checks=["value"])
    other, _ = planned(OPS["relu"], Options(CPU), checks=["value"])
    some = Pace([one, other])
    contract, *others = in_order(one)
    assert [step.check for step in others] == ["mutation", "batching", "value"]
    some.begin(contract)
    assert some.left_s is None
    now += 30.0
    some.begin(others[0])
    rate = 30.0 / SHARES["contract"]
    whole = sum(SHARES[step.check] * (1 if step.target.has_example else 0.25) for step in other.steps)
    assert some.left_s == pytest.approx(rate * (sum(SHARES[step.check] for step in others) + whole))
    for step in others[1:]:
        some.begin(step)
    some.leave(one)
    first, *_ = in_order(other)
    some.begin(first)
    now += 1.0
    assert some.left_s == pytest.approx(30.0 / sum(SHARES[step.check] for step in (contract, *others)) * whole)
