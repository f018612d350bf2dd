"""What a request for a check asks for, as plain data that another process can read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from app.errors import Loc
from app.gradcheck import rounding
from app.gradcheck.options import Options
from app.gradcheck.report import Report
from app.tensors import json
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array, Op


@dataclass(frozen=True)
class Job:
    """The checks of one op: its name, and the fields of the request.

    ``checks`` are names, ``None`` for all; ``inputs`` and ``attrs`` are those of JSON, ``None`` for the op's examples
    and random ones. ``parameters`` is the digest of the values around which parameters move, ``None`` for the
    page's. Equal jobs have equal steps, in any process that has loaded the same ops.
    """

    op: str
    options: Options
    checks: tuple[str, ...] | None = None
    inputs: Mapping[str, Any] | None = None
    attrs: Mapping[str, Any] | None = None
    parameters: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the op is left out, and no tolerance is added, so that the verdict is one on the op."""
        options = self.options
        choices = (self.checks, self.inputs, self.attrs, self.parameters, options.dtypes, options.modes)
        is_exact = options.absolute == options.relative == 0 and not options.strict_claims
        return all(choice is None for choice in choices) and {1, 2} <= {*options.orders} and is_exact

    def report(self, op: Op) -> Report:
        """Return an empty report on ``op``, which has the job's name, with its steps.

        Raises ``Unprocessable`` for inputs and attributes that the op does not accept.
        """
        report = Report(op, self.options)
        report.plan(decode_widening, checks=self.checks, inputs=self.inputs, attrs=self.attrs)
        return report


def decode_widening(value: Any, dtype: str, loc: Loc) -> Array:
    """Decode a tensor; a typed tensor of a narrower float dtype is widened to ``dtype``."""
    own = cast(dict[str, Any], value).get("dtype") if isinstance(value, dict) else None
    if not isinstance(own, str):
        return json.decode(value, dtype, loc)
    if {own, dtype} <= set(FLOATS) and rounding.eps(own) > rounding.eps(dtype):
        return json.decode(value, own, loc).astype(DTYPES[dtype].numpy)
    if (own, dtype) == ("complex64", "complex128"):
        return json.decode(value, own, loc).astype(np.float64)
    return json.decode(value, dtype, loc)
