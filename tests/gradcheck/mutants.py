"""``python -m tests.gradcheck.mutants``: break the checker in many places; the planted ops must show each break.

A mutant is one change of the checker's code, and the ops that show it: a wrong op that is missed then, or a right one
that alarms. It prints the mutants that nothing shows.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("pullback/gradcheck", "pullback/gradcheck/checks", "app/gradcheck", "app/autodiff")
COPIED = ("app", "ops", "pullback", "tests", "pyproject.toml")
SHOWN = ("MISSED", "UNDESERVED", "FAILED")
# The exit statuses of tests that ran: none failed, or some did.
RAN = (0, 1)
# Other points of a check may show by chance what a mutant hides at the first seed.
SEVERAL = (("--seeds", "1"), ("--first", "1", "--seeds", "7"))
PLANTED = ("tests/gradcheck/test_planted_faults.py",)
LARGE, POINTS = ("tests/gradcheck/test_large_inputs.py",), ("tests/gradcheck/test_points.py",)
NUMERIC, NOISE = ("tests/gradcheck/test_numeric.py",), ("tests/gradcheck/test_noise.py",)
ROWS, SIZES = ("tests/gradcheck/test_rows.py",), ("tests/gradcheck/test_sizes.py",)
CALLS = ("tests/gradcheck/test_calls.py",)
ORDERS = ("tests/gradcheck/test_orders.py",)
ROUNDING = ("tests/gradcheck/test_random_rounding.py",)
ENDS = ("tests/gradcheck/test_domain_ends.py",)
CUTS = ("tests/gradcheck/test_cuts.py", "-k", "wrong_across and 0")
NARROW_NUMPY = ("tests/gradcheck/test_narrow_numpy.py",)
VERIFY = ("tests/gradcheck/test_verify_rounding.py",)
JUDGED = ("tests/gradcheck/test_judged.py",)
SERVERS = ("tests/server_checks/test_planted_gradients.py",)
COVERAGE = ("tests/gradcheck/test_coverage.py",)
SPARSITY = ("tests/gradcheck/test_declared_sparsity.py",)
DECLARATIONS = ("tests/gradcheck/test_declarations.py",)
UNDECLARED = ("tests/gradcheck/test_undeclared.py",)
SEEDS = ("tests/gradcheck/test_trust.py", "-k", "few_seeds")
ORDINARY = "tests/gradcheck/test_ordinary_models.py"
SILENT = ("tests/gradcheck/test_no_false_alarms.py", "-k", "not registered")


@dataclass(frozen=True)
class Mutant:
    """A change in a module of the checker, and the names of ops that show it, or the tests that do."""

    module: str
    before: str
    after: str
    names: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def path(self, root: Path) -> Path:
        """Return the path of the module in a copy of this repository: the first of this name that has the code."""
        paths = [path for package in PACKAGES if (path := root / package / self.module).exists()]
        return next((path for path in paths if self.before in path.read_text()), paths[0])

    def broken(self, code: str) -> str:
        """Return the module's code with the change; raise ``ValueError`` if it cannot be made in exactly one place."""
        if code.count(self.before) != 1:
            raise ValueError(f"expected {self.before!r} once in {self.module}, got {code.count(self.before)}")
        return code.replace(self.before, self.after)


MUTANTS = (
    # Optional inputs, and the second type variable.
    Mutant(
        "report.py",
        "for one in variants(op) if",
        "for one in variants(op)[:1] if",
        ("a slope that is wrong without an input", "indices of int64 that overwrite each other"),
    ),
    # Numbers that others hide.
    Mutant("scales.py", "direction * 2.0 ** -powers(size)", "direction", tests=SERVERS),
    Mutant(
        "balance.py",
        "{name: balance(v, gradients[name]) for name, v in sample.vectors.items()}",
        "sample.vectors",
        ("the second order of one output of inputs in small units",),
    ),
    Mutant(
        "balance.py",
        "bounds[key] = np.fmin(bound, ",
        "bounds[key] = np.fmax(bound, ",
        ("an output in small units, 1 % off",),
    ),
    Mutant(
        "balance.py",
        "not any(_hides(sample, name) for name in sample.vectors)",
        "True",
        ("the second order of one output of inputs in small units",),
    ),
    Mutant("number_comparison.py", "statuses[is_hidden] = _NO_DIGITS", "pass", tests=COVERAGE),
    Mutant("number_comparison.py", "is_cancelled &= scale is not None", "pass", tests=COVERAGE),
    Mutant("number_comparison.py", "CANCELLED_BAR = 8.0, 2.0**-8", "CANCELLED_BAR = 8.0, 1.0", tests=COVERAGE),
    Mutant("number_comparison.py", "CANCELLED_BAR = 8.0, ", "CANCELLED_BAR = 800.0, ", tests=COVERAGE),
    Mutant("number_comparison.py", "is_whole = not self._hidden or ", "is_whole = True or ", tests=COVERAGE),
    Mutant("verify.py", "np.where(is_hidden & ~is_near, np.inf, 0.0)", "0 * bar", tests=COVERAGE),
    Mutant("slope_comparison.py", "allowed <= NO_DIGITS * size, allowed, np.inf", "True, 0, 0", tests=COVERAGE),
    Mutant(
        "target.py",
        "found += balanced(sample, self.checkpoint)",
        "balanced(sample, self.checkpoint)",
        ("an output in small units, a thousand times too large",),
    ),
    # Numbers that no direction can show, and those that are judged elsewhere.
    Mutant("comparison.py", "is_lost & (analytic != 0)", "is_lost & False", tests=JUDGED),
    Mutant("comparison.py", "(analytic == 0) & (numeric.value == 0)", "False", tests=JUDGED),
    Mutant("balance.py", "ALIKE * rng.uniform", "1e3 * rng.uniform", tests=JUDGED),
    Mutant(
        "number_comparison.py",
        "self._judged[shape, index] = self._judged.get((shape, index)",
        "self._judged[(), index] = self._judged.get(((), index)",
        tests=JUDGED,
    ),
    Mutant("checks/adjoint.py", '"scale": size', '"scale": None', tests=JUDGED),
    # The scales of numbers of other servers.
    Mutant("units.py", "1 / balance(np.ones(slot.shape), size)", "np.ones(slot.shape)", tests=SERVERS),
    Mutant("units.py", "np.where(moves, size,", "np.where(size > 0, size,", tests=SERVERS),
    Mutant("derivative.py", "dx * np.abs(move.by) > bar", "dx * np.abs(move.by) >= 0", tests=SERVERS),
    Mutant("evidence.py", "np.fmax(noise, rounding) / np.abs(steps).max()", "0 * noise", tests=SERVERS),
    Mutant(
        "properties.py", "balance(vectors(slot, rng), sample.size_in(slot.name))", "vectors(slot, rng)", tests=SERVERS
    ),
    Mutant("properties.py", "balance(vectors(each, rng), size)", "vectors(each, rng)", tests=SERVERS),
    Mutant("second.py", "return np.sum(parts, axis=0)", "return 0 * np.sum(parts, axis=0)", tests=SERVERS),
    Mutant("second.py", "& (apart <= meter.function.tolerance * np.abs(action))", "& False", tests=SERVERS),
    # Points and attributes.
    Mutant("points.py", "strata = rng.permuted(", "strata = 0 * rng.permuted(", tests=POINTS),
    Mutant("points.py", "0.0, -0.0, low, high, *slot.kinks", "low, high, *slot.kinks", ("0 at 0 in place of 1",)),
    Mutant(
        "points.py", "0.0, -0.0, low, high, *slot.kinks", "0.0, low, high, *slot.kinks", ("0 at -0.0 in place of 1",)
    ),
    Mutant("points.py", "0.0, -0.0, low, high, *slot.kinks", "0.0, -0.0, *slot.kinks", ("both edges of the domain",)),
    Mutant("points.py", "low, high, *slot.kinks", "low, high", ("a slope outside of both slopes at a kink",)),
    Mutant("choices.py", "return list(get_args(kind))", "return []", ("a wrong unit at one literal",)),
    Mutant("choices.py", "return [False, True]", "return []", ("two switches wrong together only",)),
    Mutant(
        "choices.py",
        "len(values[one]) * len(values[other]) <= COMBINED",
        "False",
        ("two switches wrong together only",),
    ),
    Mutant(
        "choices.py",
        "return sorted({first, min(first + 1, last), int(rng.integers(first, last + 1)), last}",
        "return sorted({first, min(first + 1, last)}",
        ("a loop too short at the largest power",),
    ),
    Mutant(
        "choices.py",
        "last + 1 if last - first < INTEGERS else first + 2",
        "first + 2",
        ("one integer of ten", "one pair of values of many"),
    ),
    Mutant("choices.py", "<= EXHAUSTED", "<= 0", ("one combination of three switches, at second order",)),
    Mutant("choices.py", "COVERING)", "9)", ("one pair of values of many",)),
    Mutant(
        "choices.py",
        "[row] if accepts(row) else _pairs(row)",
        "[row]",
        ("one pair of values, where half of the combinations are refused",),
    ),
    Mutant(
        "checks/attributes.py",
        "sample = _finite(sample)",
        "pass",
        ("one integer of ten, where half of the points have no value",),
    ),
    Mutant("checks/declarations.py", "FIRST_ZERO = 16, 11", "FIRST_ZERO = 16, 17", tests=DECLARATIONS),
    Mutant("checks/declarations.py", "ROUNDINGS, MOVES = 256.0", "ROUNDINGS, MOVES = 1e14", tests=DECLARATIONS),
    Mutant("checks/sparsity.py", "if pattern is not None:", "if pattern is None:", tests=SPARSITY),
    Mutant("checks/sparsity.py", "except (Missed, OpFailed) as", "except OpFailed as", tests=SPARSITY),
    Mutant("checks/sparsity.py", '"fail", f"the declared', '"pass", f"the declared', tests=SPARSITY),
    Mutant("checks/declarations.py", "*choices.of_no_example(op, options.seed)", "", tests=DECLARATIONS),
    Mutant("checks/declarations.py", "DRAWN, ALONE = 2, 12", "DRAWN, ALONE = 2, 0", tests=DECLARATIONS),
    Mutant("checks/declarations.py", '"fail" if target.options.strict_claims', '"pass" if True', tests=DECLARATIONS),
    Mutant("choices.py", "return [*ends, *(", "return [*(", ("the limit at the lower bound of a number",)),
    # Sweeps.
    Mutant(
        "sweep.py",
        "np.flatnonzero(ratios > 1)",
        "np.flatnonzero(ratios > np.inf)",
        ("short rows with a floor", "small weights that do not shrink"),
    ),
    Mutant(
        "checks/derivative.py",
        "sweep.suspects(target, 1), False",
        "list[Sample](), False",
        ("short rows with a floor", "small weights that do not shrink"),
    ),
    Mutant("sweep.py", "if isinstance(subsample, Subsample):", "if False:", tests=LARGE),
    # Special points.
    Mutant(
        "checks/derivative.py",
        "    if not has_failed:\n",
        "    if has_failed:\n",
        ("each maximum gets all of dy", "no gradient at equal rows"),
    ),
    Mutant(
        "kinks.py",
        "(of.high - of.low) / 2 + bar, status",
        "bar, status",
        ("relu6", "absolute"),
    ),
    Mutant(
        "one_sided.py",
        "others = np.where(apart > OTHER_SLOPE * size, nearby, right[:, None])",
        "others = np.repeat(right[:, None], NEARBY_POINTS, axis=1)",
        ("row_median", "sorted_rows"),
    ),
    Mutant(
        "kinks.py",
        "together = [ones] if sample.is_elementwise else [_tied(inputs, rng) for _ in range(TOGETHER)]",
        "together: list[dict[str, Array]] = []",
        ("each maximum gets all of dy", "equal entries of a sort get the sum"),
    ),
    Mutant(
        "kinks.py",
        "(of.high - of.low) / 2 + bar, status",
        "2 * (of.high - of.low) + bar + 2, status",
        ("a slope outside of both slopes at a kink", "0 at 0 in place of 1"),
    ),
    Mutant("checks/second.py", 'comparisons, kind="products")', "{}) if False else None", ("no second order at 0",)),
    Mutant(
        "checks/adjoint.py",
        "            _compare(target, sample, special)",
        "            pass",
        ("a slot of dy that is doubled at the end of the domain",),
    ),
    Mutant("points.py", "ranks < TWICE, 0.0", "ranks < 0, 0.0", ("TensorFlow's product of rows with two zeros",)),
    Mutant(
        "points.py",
        "TWICE, COMBINED = 2, 48",
        "TWICE, COMBINED = 2, 0",
        ("no mixed second order where both inputs are 0",),
    ),
    # Ordinary functions: many kinks, and derivatives of 0 in float32 alone.
    Mutant("slope_comparison.py", "in THIRD_ESTIMATES if", "in () if", tests=(ORDINARY, "-k", "no_slope")),
    Mutant("comparison.py", "np.mean(counts) < least", "False", tests=(ORDINARY, "-k", "lost_one")),
    Mutant("one_sided.py", "range(1, 1 + MORE_DRAWS)", "()", tests=(ORDINARY, "-k", "large_hull")),
    # The numeric derivative and its bars.
    Mutant(
        "comparison.py",
        "        _compare_directions(target, subsample, gradient, objective)\n",
        "        pass\n",
        tests=PLANTED,
    ),
    Mutant(
        "slope_comparison.py",
        "allowed = COVERAGE * numeric.error + bar\n",
        "allowed = COVERAGE * numeric.error + bar + 1\n",
        tests=PLANTED,
    ),
    Mutant(
        "numeric.py",
        "status[_is_kink(middle, right, left, steps, noise)] = Status.KINK",
        "pass",
        ("round_straight_through", "relu6", "row_maximum_by_hand", "quantize"),
    ),
    Mutant(
        "numeric.py",
        "np.where(stair > 0, Status.FLAT, Status.NO_DIGITS)[",
        "np.full(stair.shape, Status.NO_DIGITS)[",
        tests=LARGE,
    ),
    Mutant("rounding.py", "ROUNDINGS = 16", "ROUNDINGS = 0.01", tests=ROUNDING),
    Mutant("rounding.py", "NOISES * of_noise\n", "0.0 * of_noise\n", tests=NOISE),
    Mutant("rounding.py", "np.fmax(of_noise, np.median(relative) * stable)", "of_noise", tests=NOISE),
    # The roundings inside the op.
    Mutant("rounding.py", "+ sensitivity[name] + terms[name]", "+ sensitivity[name]", tests=ROUNDING),
    Mutant("rounding.py", "own * eps(dtype) * size + times * tails * spread", "0.5 * size", tests=VERIFY),
    Mutant(
        "rounding.py", "own * eps(dtype) * size + times * tails * spread", "own * eps(dtype) * size", tests=ROUNDING
    ),
    Mutant(
        "rounding.py", "stable = size + sens", "stable = np.fmax(size, 1.0) + sens", ("twice the slope of a tiny cube",)
    ),
    Mutant("random_rounding.py", " or op_type in WHOLE", "", tests=ROUNDING),
    Mutant(
        "random_rounding.py",
        "while isinstance(graph, ControlFlowFuncGraph) or",
        "while",
        tests=ROUNDING,
    ),
    Mutant("random_rounding.py", "is_floating or x.dtype.is_complex", "is_floating", ("convolution_by_transforms",)),
    Mutant(
        "random_rounding.py", "op_type in COMPLEX_SUMS if outputs[0].dtype.is_complex else ", "", ("complex_square",)
    ),
    Mutant("sample.py", "if any(lost.any() for lost in", "if False and any(lost.any() for lost in", tests=ROUNDING),
    Mutant("rounding.py", "** FLUSHED_POWER", "** 0.1", tests=ROUNDING),
    Mutant("reference.py", "if ufunc in EXACT else", "if True else", tests=ROUNDING),
    Mutant("reference.py", "if np.iscomplexobj(results) and", "if False and", tests=ROUNDING),
    Mutant("checks/modes.py", "RANKS = ((), (2, 3))", "RANKS = ((),)", ("a mean over two axes where three are known",)),
    # Coverage.
    Mutant("verdict.py", "compared >= least * (compared + unknown)", "True", tests=COVERAGE),
    Mutant(
        "causes.py",
        'if verdict != "inconclusive" or "pass" not in each',
        'if verdict != "inconclusive"',
        tests=COVERAGE,
    ),
    Mutant("outside.py", "if target.op.sample is not None and", "if False and", tests=COVERAGE),
    Mutant("widening.py", "is_half = set(op.dtypes) <= HALF", "return op", tests=COVERAGE),
    Mutant("widening.py", 'and is_as_reference(sample.point, sample.of_kind("outputs"))', "", ("short_sine_single",)),
    Mutant("widening.py", "not has_narrow_floats(sample.trace) and", "", ("wide_rows_unknown",)),
    Mutant("noise.py", ").any() and narrows():", ").any() and False:", ("rows whose gradient computes in float32",)),
    Mutant(
        "noise.py",
        "if may_be_narrower and _is_of_narrower_dtype(noise, middle, narrows):",
        "if False:",
        ("a value with the digits of float32", "a gradient with the digits of float32"),
    ),
    Mutant("noise.py", "return sizes >= WIDER and noises >= sizes**0.5", "return True", tests=NOISE),
    Mutant("noise.py", "DEGREES, LIKE = 3, 4.0", "DEGREES, LIKE = 3, 1.0", tests=NOISE),
    Mutant("numeric.py", "_is_jump(right - left, unit * size[-1]) | ", "", tests=NUMERIC),
    Mutant("numeric.py", " | _is_jump(right - 2 * middle + left, unit * size[-1])", "", tests=NUMERIC),
    Mutant("numeric.py", "np.where(sides, 2.0, 4.0)", "np.full_like(sides, 4.0)", tests=ENDS),
    Mutant("points.py", "np.where(x == slot.domain[1], -1.0, 0.0)", "0.0", tests=ENDS),
    Mutant("one_sided.py", "np.where(is_jump, np.nan, extrapolated[1])", "extrapolated[1]", tests=CUTS),
    Mutant("one_sided.py", "np.where(is_beyond, np.nan, nearby)", "nearby", tests=CUTS),
    Mutant("rounding.py", "noise_floors is None and not is_hidden()", "noise_floors is None", tests=NARROW_NUMPY),
    Mutant(
        "number_comparison.py", "        if self.wrong:\n", "        if self.wrong > self.points / 2:\n", tests=PLANTED
    ),
    # The first order alone.
    Mutant("target.py", 'return "gradients" if self.why_no_second else "products"', 'return "products"', tests=ORDERS),
    Mutant("report.py", "orders == {2}", "2 in orders", tests=ORDERS),
    Mutant("report.py", "orders == {2}", "False", tests=ORDERS),
    Mutant("checks/value.py", 'return sample.up_to("outputs")', "return sample", tests=ORDERS),
    Mutant("checks/contract.py", "(None, *USUAL)", "(None,)", tests=UNDECLARED),
    # The checks.
    Mutant(
        "checks/value.py",
        "rounding.ROUNDINGS * (size + moves()[name])",
        "1e9 * moves()[name] + 1e-3",
        ("π with the digits of float32", "a constant that has lost digits"),
    ),
    Mutant(
        "checks/value.py", "not is_whole and not rounding.is_within", "False and not rounding.is_within", ("matmul",)
    ),
    Mutant("sample.py", "least if rounding.is_within(found, expected, least) else", "least if True else", ("matmul",)),
    Mutant("reference.py", "np.asanyarray(x, np.float64)", "x", tests=("tests/gradcheck/test_reference.py",)),
    Mutant("checks/retrace.py", "RETRACES = 2", "RETRACES = 0", ("a counter in a closure", "the time of the trace")),
    Mutant(
        "checks/determinism.py",
        "sample.again().values",
        "sample.values",
        ("random noise in the gradient", "random dropout"),
    ),
    Mutant(
        "checks/second.py",
        "    compare(target, subsample, gradient, dy_objective(target, subsample))\n",
        "    pass\n",
        tests=PLANTED,
    ),
    Mutant(
        "checks/second.py",
        "compare(target, subsample, gradient, x_objective(target, subsample))",
        "pass",
        tests=PLANTED,
    ),
    Mutant(
        "checks/symmetry.py",
        "compare_inner(comparison, forth, back",
        "compare_inner(comparison, forth, forth",
        ("a mixed term that reaches one input alone",),
    ),
    Mutant(
        "checks/modes.py",
        "*(() if target.op.sample else special)",
        "*()",
        ("a NaN that a compiler loses",),
    ),
    Mutant("checks/modes.py", 'if mode != "graph":', 'if mode == "xla":', ("a shortcut in eager mode",)),
    Mutant(
        "checks/dtypes.py",
        "for dtype in target.dtypes",
        "for dtype in target.dtypes[:1]",
        ("a sign in float32", "another argument in bfloat16"),
    ),
    Mutant("checks/finite.py", "return bool(np.isfinite(true)) and abs(true) <= high", "return True", tests=SILENT),
    Mutant("checks/finite.py", "if slot.has_domain and not", "if not", tests=PLANTED),
    Mutant("checks/finite.py", "order), Formula) and key[0]", "order), Derivative) and key[0]", tests=SILENT),
    Mutant("identities.py", "np.sum(parts, axis=0)", "np.asarray(found, np.float64)", tests=PLANTED),
    Mutant("checks/linearity.py", "for power in (n, -n)), 0.0)", "for power in (-n,)), 0.0)", ("clipped at 1e8",)),
    Mutant("checks/linearity.py", "for power in (n, -n)), 0.0)", "for power in (n,)), 0.0)", ("flushed under 1e-9",)),
    Mutant("checks/linearity.py", "(n, -n)), 0.0)", "(n, -n)),)", ("divided by cotangents of 0",)),
    Mutant(
        "checks/linearity.py",
        "if scale and _may_be_lost(",
        "if 0 and _may_be_lost(",
        tests=(SILENT[0], "-k", "sharp"),
    ),
    Mutant("random_rounding.py", '_rounding(op_type) == "of saturated" or', "", tests=ROUNDING),
    Mutant("checks/linearity.py", "(20, 40), (3,)", "(20,), (3,)", ("clipped at 1e8",)),
    Mutant("checks/linearity.py", 'of_dys["products"] =', "_ =", ("a second order clipped at 1e8",)),
    Mutant("checks/linearity.py", '"slots": "jvp(s v)"', '"none": ""', ("a second order flushed under 1e-9",)),
    Mutant("identities.py", "{name: np.ones_like(dy)", "{name: dy", ("another formula for cotangents of 1",)),
    Mutant("checks/finite.py", "expected & (value != 0)", "False", ("a gradient for NaN that forward leaves out",)),
    Mutant("checks/finite.py", "*huge, *hidden]", "*huge]", ("NaN in the gradient of rows without it",)),
    Mutant("target.py", "or is_as_reference(point, outputs)", "or True", ("picked_by_one_hot",)),
    Mutant("points.py", "1 + OFF * ", "1 + 0 * ", ("a slope that is right for symmetric matrices",)),
    Mutant("points.py", "np.full_like(x, rng.choice(np.ravel(x)))", "x", ("equal indices that overwrite each other",)),
    Mutant("points.py", "name: -1 - x", "name: x", ("negative indices that are dropped",)),
    Mutant("points.py", "in (*_near(slot), *(", "in ((", ("a denominator that is clamped near poles",)),
    Mutant(
        "points.py",
        "() if slot.has_domain else FAR_OUT",
        "()",
        ("rows without a slope outside of the default domain",),
    ),
    Mutant("sweep.py", "found += target.near_samples", "pass", ("a denominator that is clamped near poles",)),
    Mutant(
        "sweep.py",
        ", (target.near_samples, target.near_values))",
        ",)",
        ("a root that is clamped near the ends of the domain",),
    ),
    Mutant("numeric.py", "np.where(is_lost, np.fmax(error, _pick(rounding, best)), error)", "error", tests=NUMERIC),
    Mutant("rounding.py", "FEW_DIGITS, OF_TAILS = 1 / 8, 3.0", "FEW_DIGITS, OF_TAILS = 1 / 8, 1.0", tests=ROUNDING),
    Mutant("checks/directions.py", "np.where(is_known, Status.OK, Status.NOT_FINITE)", "None", tests=SEEDS),
    Mutant("checks/quick_look.py", "steps = (*steps, TINY_STEP)", "pass", tests=SEEDS),
    Mutant("one_sided.py", "eps * sizes)", "0 * sizes)", tests=SEEDS),
    Mutant("identities.py", "left.bar + right.bar", "np.array(np.inf)", tests=PLANTED),
    Mutant("checks/batching.py", "expected, 2 * bar", "expected, np.array(np.inf)", tests=PLANTED),
    Mutant("company.py", "expected, bar, key", "expected, np.array(np.inf), key", tests=ROWS),
    Mutant("company.py", "whole, bar, key", "whole, np.array(np.inf), key", tests=ROWS),
    # Sizes, shapes and the ways to call.
    Mutant("sizes.py", "SIZES = (1, 2,", "SIZES = (2,", ("a scan that is wrong at one number",)),
    Mutant("sizes.py", "33, 63, 64, 65)", "33, 63)", ("a scan that is wrong at 64 numbers",)),
    Mutant("sizes.py", "BLOCKS = ((127, 128, 129), ", "BLOCKS = (", ("a scan that is wrong at 129 numbers",)),
    Mutant("sizes.py", "if not points and len", "if points and len", ("two sizes that must be equal, wrong at 513",)),
    Mutant(
        "checks/sizes.py",
        "in (*sizes.BLOCKS, *(",
        "in (*(sizes.BLOCKS if is_bounded else ()), *(",
        ("a transposed solve that ends after 126 steps",),
    ),
    Mutant("checks/sizes.py", "((n,), (n, 2))", "((n,),)", ("a matrix of 127 rows",)),
    Mutant("checks/sizes.py", "((n,), (n, 2))", "((n, 2),)", ("a vector of 257 numbers",)),
    Mutant("company.py", "in self._of_blocks(rng):", "in ():", ("rows that read the first one in batches of 256",)),
    Mutant("sizes.py", "LONG = (1025, 4097)", "LONG = ()", ("a scan that is wrong from 4,000 numbers on",)),
    Mutant("sizes.py", "yield from _arranged(target, with_rows[i])", "pass", ("rows that ascend", "rows that descend")),
    Mutant("sizes.py", '"positive": np.abs,', "", ("rows of positive numbers",)),
    Mutant("sizes.py", "ARRANGED, ROW = 3, 5", "ARRANGED, ROW = 3, 99", ("rows that descend",)),
    Mutant("sizes.py", "AXES = ((), (1,)", "AXES = ((1,)", ("a vector without rows",)),
    Mutant("sizes.py", "if symbols and", "if not symbols and", ("two sizes that must be equal, wrong from five on",)),
    Mutant(
        "checks/quick_look.py",
        "max(ratio, _ratio_of_slots(sample))",
        "ratio",
        ("a slot of dy that is wrong at 33 numbers",),
    ),
    Mutant("checks/quick_look.py", 'return float("inf")', "return 0.0", ("the deviation of one number",)),
    Mutant(
        "checks/quick_look.py",
        "return _ratio_to_reference(sample)",
        "return 0.0",
        ("a value that is wrong from 33 numbers on",),
    ),
    Mutant("checks/sizes.py", "if not order and not isinstance(error.__cause__, OpFault)", "if not order", tests=SIZES),
    Mutant("checks/sizes.py", "((), (1,), (5,)", "((1,), (5,)", ("a scalar",)),
    Mutant("checks/sizes.py", "((4097,), ((1 << 17) + 1,))", "((4097,),)", ("the first number of a second shard",)),
    Mutant("sweep.py", "{**inputs, **xs} for xs", "{**xs} for xs", tests=SIZES),
    Mutant("agreement.py", "why or each", "each", ("a constant that grows by rounding with each trace",)),
    Mutant("agreement.py", "MOST_UNITS = 4.0", "MOST_UNITS = 0.0", tests=CALLS),
    Mutant("agreement.py", "MOST_UNITS = 4.0", "MOST_UNITS = 1e9", tests=CALLS),
    Mutant(
        "checks/subset.py",
        "add(alone, whole",
        "add(whole, whole",
        ("a gradient that another input's gradient completes",),
    ),
    Mutant(
        "checks/directions.py",
        '("graph", "eager")',
        '("graph",)',
        ("a gradient that is computed once for all cotangents",),
    ),
    Mutant("checks/mutation.py", "if changed.any()", "if False", ("a cotangent that the gradient changes",)),
    Mutant("checks/higher.py", "compare_x_slots(derived, own, inputs)", "pass", tests=CALLS),
)


def shown(mutant: Mutant) -> list[str]:
    """Return the lines that show a mutant.

    Raise ``ValueError`` if its code is not in the module exactly once, or if no test of it runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder, name))
        Path(folder, "build").symlink_to(ROOT / "build")
        path = mutant.path(Path(folder))
        path.write_text(mutant.broken(path.read_text()))
        tests = ["pytest", "-x", "-n", "0", "-m", "not docker", "-p", "no:cacheprovider", *mutant.tests]
        trust = ["tests.gradcheck.trust", "--processes", "1", *mutant.names]
        commands = [tests] if mutant.tests else [[*trust, *seeds] for seeds in SEVERAL]
        for command in commands:
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False
            )
            has_ended = mutant.tests or "\nall " in done.stdout  # the last line of trust's table
            if done.returncode not in RAN or not has_ended:
                raise ValueError(f"{mutant.module}, {mutant.after!r}: {(done.stdout + done.stderr)[-500:]}")
            if lines := [line for line in done.stdout.splitlines() if line.startswith(SHOWN)]:
                return lines
        return []


def main(arguments: argparse.Namespace) -> int:
    """Print what shows each mutant; return 1 if nothing shows one."""
    hidden = 0
    chosen = [mutant for mutant in MUTANTS if not arguments.modules or mutant.module in arguments.modules]
    with ThreadPoolExecutor(arguments.processes) as pool:
        for mutant, lines in zip(chosen, pool.map(shown, chosen), strict=True):
            print(f"{mutant.module}: {mutant.after[:60]!r}: {lines[0][:100] if lines else 'NOT SHOWN'}", flush=True)
            hidden += not lines
    print(f"{len(chosen) - hidden} of {len(chosen)} mutants are shown")
    return 1 if hidden else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure whether the planted ops show what breaks the checker.")
    parser.add_argument("modules", nargs="*", help="the modules to break; all, if there are none")
    parser.add_argument("--processes", type=int, default=2, help="how many mutants at a time")
    sys.exit(main(parser.parse_args()))
