"""The verdict on each op as it is now, and requests that require one."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from app.autodiff.derived import origin
from app.autodiff.point import Spec
from app.errors import Unverified
from app.kept.last_checks import LastCheck, LastChecks
from app.processes.provenance import Provenance
from ops import Op
from pullback.gradcheck.verdict import Verdict

REQUIRED: Verdict = "pass"
"""The verdict that a request may require."""
# How long requests use what was found, and for how many ops it is known.
FRESH_S, KNOWN = 0.5, 1024


class Standing(NamedTuple):
    """The last whole check of an op, if there is one, and the names of what has changed since, as in ``Origin``."""

    check: LastCheck | None
    changed: Sequence[str]

    @property
    def why_not(self) -> str:
        """Why it is not the required verdict, "" if it is."""
        if self.check is None:
            return "no check of the whole op has ended"
        if self.changed:
            return f"{', '.join(self.changed)} changed after the last check"
        return "" if self.check.verdict == REQUIRED else f"the last check ended with {self.check.verdict}"


class Verdicts:
    """The verdicts on the ops of a service. With ``are_required``, every request needs one."""

    def __init__(self, checks: LastChecks, provenance: Provenance, *, are_required: bool = False) -> None:
        """Take where the last checks are kept."""
        self.checks, self.are_required = checks, are_required
        self._provenance, self._found = provenance, OrderedDict[str, tuple[float, Standing]]()

    def note(self, op: Op, verdict: Verdict, seed: int, devices: Sequence[str]) -> None:
        """Keep the verdict of a whole check that has ended; this may write a file."""
        kept = LastCheck(verdict, time.time(), seed, list(devices), dict(self._provenance.of(op)))
        self.checks.note(op.name, kept)

    def standing(self, op: Op, check: LastCheck | None) -> Standing:
        """Return the standing of a check of an op; this reads files."""
        return Standing(check, self._provenance.changed(op, check.origin) if check else ())

    def look(self, op: Op) -> Standing:
        """Return the verdict on an op, or on the one that it is derived from; this reads files."""
        base = origin(op)[0]
        return self.standing(base, self.checks.by_op().get(base.name))

    async def need(self, spec: Spec) -> None:
        """Raise ``Unverified`` unless an op has the required verdict, with these values of its parameters."""
        base = origin(spec.op)[0]
        until, found = self._found.get(base.name, (0.0, Standing(None, ())))
        if time.monotonic() >= until:
            found = await asyncio.to_thread(self.look, base)
            self._found[base.name] = time.monotonic() + FRESH_S, found
            if len(self._found) > KNOWN:
                self._found.popitem(last=False)
        cure = f"POST /v1/ops/{base.name}/check checks it"
        if why := found.why_not:
            raise Unverified(f"op {base.name} has no current verdict {REQUIRED}: {why}; {cure}")
        if spec.parameters.digest != base.own_parameters.digest:
            own = base.own_parameters.digest
            raise Unverified(
                f"the verdict on op {base.name} is one on the parameters {own}, not on those of the request"
            )
