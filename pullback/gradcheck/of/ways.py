"""A function as a model in float64, beside the other ways in which it runs: dtypes, modes, layouts and sizes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, cast

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadArgument, PullbackError
from pullback.gradcheck import floats
from pullback.gradcheck.function import Arrays, Function, Variant, shown
from pullback.gradcheck.of.calling import Tree, as_arrays, flatten, rebuild
from pullback.gradcheck.of.layouts import BROADCAST, STRIDED, is_ordered, resampled
from pullback.gradcheck.of.library import Library
from pullback.gradcheck.of.local import Given, LocalFunction
from pullback.gradcheck.of.source import Spelling
from pullback.gradcheck.of.user_code import within

LARGE = 67
"""A size that is larger than the blocks in which kernels go through small arrays, and no multiple of them."""
Make = Callable[..., LocalFunction]
"""Makes a model of a library's function, its numbers and a dtype, perhaps with a layout; raises ``BadArgument``."""

WIDE = "float64"
MOST_NUMBERS = 1 << 16
"""The most numbers of all inputs together in other sizes."""


def resized(arguments: Mapping[str, Tree], *, shrinks: bool) -> Iterator[list[dict[str, Tree]]]:
    """Yield lists of arguments, of which the first that the function takes is wanted.

    All sizes are larger by one; then the largest is large; then, if it ``shrinks``, the smallest is 1. So equal ones
    stay equal, unless the function takes others of leading dimensions alone, and a matrix with more rows than columns
    stays one. Numbers are repeated: labels and indices stay valid, but for those that shrink.
    """
    shapes = [cast(tuple[int, ...], x.shape) for _, x in flatten(arguments, "") if getattr(x, "ndim", 0)]
    sizes = {size for shape in shapes for size in shape}
    if not sizes or not all(sizes):
        return
    grown = {size: size + 1 for size in sizes}
    leading = {shape[0] for shape in shapes}
    yield [_with(arguments, grown), _with(arguments, {size: size + 1 for size in leading}, axes=1)]
    yield [_with(arguments, {max(sizes): LARGE}), _with(arguments, dict.fromkeys(leading, LARGE), axes=1)]
    if shrinks:
        yield [_with(arguments, {min(sizes): 1})]


def _with(arguments: Mapping[str, Tree], sizes: Mapping[int, int], axes: int | None = None) -> dict[str, Tree]:
    def change(_: str, x: Any) -> Any:
        # To index an array of JAX takes a compilation for each index.
        x = x if hasattr(x, "requires_grad") or not hasattr(x, "shape") else np.asarray(x)
        for axis, size in enumerate(getattr(x, "shape", ())[:axes]):
            x = x[(slice(None),) * axis + (np.arange(sizes.get(size, size)) % size,)]
        return x

    return cast(dict[str, Tree], rebuild(arguments, "", change))


def local_function(
    target: str,
    library: Library,
    arguments: Mapping[str, Tree],
    given: Given,
    spelling: Spelling,
    *,
    limit_s: float | None = None,
) -> LocalFunction:
    """Return the function as a model in float64, with its variants and sizes.

    Its dtypes are those of the arguments, and the ``given`` ones. A function that takes no float64 is a model in its
    own dtype. With ``limit_s``, another thread makes the first calls, and may take so many seconds for each model.
    """
    arguments = as_arrays(arguments)
    try:
        start = within(limit_s, partial(library.leaves, arguments))
    except BadArgument as error:
        raise BadArgument(f"{target}: {error}") from error
    if not start:
        expected = "an argument with floats, complex ones for PyTorch and JAX alone (an integer is a constant)"
        raise BadArgument(f"{target}: expected {expected}, got {shown(dict(arguments))}")
    if unknown := [dtype for dtype in given.dtypes if dtype not in library.dtypes]:
        raise BadArgument(f"--dtype: expected some of {', '.join(library.dtypes)} for {target}, got {unknown[0]!r}")
    own = floats.narrowest(map(floats.name_of, start.values()))
    narrower, numbers = dict.fromkeys(each for each in (own, *given.dtypes) if each != WIDE), _drawn(start, given)

    tolerance = 0.0

    def make(function: Library, numbers: Arrays, dtype: str, **layout: Any) -> LocalFunction:
        found = within(limit_s, partial(LocalFunction, target, function, numbers, given.domains, dtype, **layout))
        found.spelling, found.tolerance = spelling, max(found.tolerance, tolerance)
        return found

    try:
        found = make(library, numbers, WIDE)
    except BadArgument:
        if own == WIDE:
            raise
        found, narrower = make(library, numbers, own), dict.fromkeys(given.dtypes)
        found.remark = f"The function takes no float64: it was checked in {own} alone. {found.remark}".rstrip()
    casts = library.casts_to
    if casts and floats.eps(casts) > floats.eps(found.dtype) and (wide := library.widened()) is not None:
        # Its derivatives are those of the function without rounding, beside which the function as written is compared.
        with suppress(BadArgument):
            found = make(wide, numbers, WIDE)
            how = f"It casts to {casts}: it was checked without these casts, and then compared as written."
            found.remark = f"{how} {found.remark}".rstrip()
            narrower = {own: None, **narrower}
    if narrower and library.draws:
        narrower.clear()
        why = f"It draws random numbers, others in each dtype: it was checked in {found.dtype} alone."
        found.remark = f"{why} {found.remark}".rstrip()
    within(limit_s, found.look_for_derivatives)
    tolerance = found.tolerance
    other = library.other(compiles=given.compiles)
    modes = {} if other is None else {(f"in mode {other.mode}", f"in mode {library.mode}"): (other, found.dtype)}
    is_cast = found.library is not library
    dtypes = {
        (f"in {dtype}", f"in {found.dtype}{' without its casts' if is_cast else ''}"): (library, dtype)
        for dtype in narrower
        if dtype != found.dtype or is_cast
    }
    found.variants = {
        "dtypes": {names: make(function, numbers, dtype) for names, (function, dtype) in dtypes.items()},
        "modes": {names: make(function, numbers, dtype) for names, (function, dtype) in modes.items()},
        "layouts": _layouts(found, make, found.library, numbers) if library.has_layouts else {},
    }
    found.sizes = _sizes(found, make, found.library, arguments, numbers, limit_s=limit_s)
    return found


def _drawn(start: Arrays, given: Given) -> dict[str, Array]:
    """Return the numbers of arguments in float64, moved into their domains."""
    numbers = {name: floats.decoded(x) for name, x in start.items()}
    return {name: np.clip(x, *given.domains[name]) if name in given.domains else x for name, x in numbers.items()}


def _layouts(found: LocalFunction, make: Make, library: Library, numbers: Arrays) -> dict[tuple[str, str], Variant]:
    """Return the function with arrays in other layouts; the remark says which it does not take."""
    layouts = dict[tuple[str, str], Variant]()
    for name, layout in {"strided": STRIDED, "broadcast": BROADCAST}.items():
        nearest = {key: layout.nearest_inputs(x) for key, x in numbers.items()}
        try:
            make(library, nearest, found.dtype)
        except PullbackError:  # it refuses these numbers in any layout
            continue
        try:
            layouts[f"of {name} arrays", "of contiguous ones"] = make(library, nearest, found.dtype, layout=layout)
        except BadArgument as error:
            found.remark = f"{found.remark} It takes no {name} arrays: {error}".lstrip()
    return layouts


def _sizes(
    found: LocalFunction,
    make: Make,
    library: Library,
    arguments: Mapping[str, Tree],
    numbers: Arrays,
    *,
    limit_s: float | None,
) -> dict[str, Function]:
    """Return the function with arguments of other sizes, as far as it takes them."""
    sizes = dict[str, Function]()
    for candidates in resized(arguments, shrinks=library.checks_indices):
        for changed in candidates:
            other = copy(library)
            try:
                start = {name: floats.decoded(x) for name, x in within(limit_s, partial(other.leaves, changed)).items()}
                ordered = [name for name in start if is_ordered(numbers[name])]
                start |= {name: resampled(numbers[name], len(start[name])) for name in ordered}
                if sum(x.size for x in start.values()) > MOST_NUMBERS:
                    continue
                function = make(other, start, found.dtype)
            except Exception:  # noqa: BLE001 - the function, or its library, does not take such a size
                continue
            new = [slot for slot in function.inputs if slot.shape != numbers[slot.name].shape]
            if new:
                sizes[", ".join(f"{slot.name} of shape {list(slot.shape)}" for slot in new)] = function
            break
    return sizes
