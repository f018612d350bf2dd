"""What an answer must keep: status, kind, fields, types and numbers, as docs/compatibility.md promises them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Differ from answer to answer, from process to process, or with the version.
MASKED = frozenset(
    (
        "id",
        "seconds",
        "ms",
        "at",
        "age_s",
        "expires_s",
        "position",
        "bytes",
        "version",
        "tensorflow",
        "page",
        "last_check",
    )
)
# Sentences, which may change.
PROSE = frozenset(
    ("detail", "message", "msg", "expected", "got", "summary", "doc", "description", "reason", "sentence")
)
# The unit roundoff of each dtype, under all names; numbers without a dtype are those of a float32 op.
UNITS = {
    **dict.fromkeys(("float16", "FP16"), 2.0**-11),
    **dict.fromkeys(("bfloat16", "BF16"), 2.0**-8),
    **dict.fromkeys(("float32", "FP32", "F32", "complex64"), 2.0**-24),
    **dict.fromkeys(("float64", "FP64", "F64", "complex128"), 2.0**-53),
}
# A number of the recorded answers is the result of at most 16 roundings, each of a value that is no larger than the
# largest number of its tensor. Two versions that round differently are within twice that.
ROUNDINGS = 16
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def differences(then: Any, now: Any, *, values: bool = True) -> list[str]:
    """Return what an answer has lost or changed since it was recorded; without ``values``, only fields and types."""
    return list(_differences(then, now, "", UNITS["float32"], values))


def _differences(then: Any, now: Any, where: str, unit: float, values: bool) -> Iterator[str]:
    if _type(then) != _type(now):
        yield f"{where or 'the answer'}: expected {_type(then)}, got {_type(now)}"
    elif isinstance(then, Mapping):
        yield from _of_fields(then, now, where, unit, values)
    elif isinstance(then, list):
        yield from _of_lists(then, now, where, unit, values)
    elif values and then != now and not _is_close(then, now, unit, _size(then)):
        yield f"{where or 'the answer'}: expected {then!r}, got {now!r}"


def _of_fields(then: Mapping[str, Any], now: Mapping[str, Any], where: str, unit: float, values: bool) -> Iterator[str]:
    unit = UNITS.get(str(then.get("dtype", then.get("datatype"))), unit)
    for name, value in then.items():
        place = f"{where}.{name}" if where else name
        if name not in now:
            yield f"{place}: is gone"
        elif name not in MASKED:
            is_prose = name in PROSE and isinstance(value, str)
            yield from _differences(value, now[name], place, unit, values and not is_prose)
        elif _type(value) != _type(now[name]):
            yield f"{place}: expected {_type(value)}, got {_type(now[name])}"


def _of_lists(then: Sequence[Any], now: Sequence[Any], where: str, unit: float, values: bool) -> Iterator[str]:
    if not then:
        return  # an empty list promises nothing
    if all(isinstance(entry, Mapping) and "name" in entry for entry in then):
        named = {entry["name"]: entry for entry in now}
        yield from _of_fields({entry["name"]: entry for entry in then}, named, where, unit, values)
    elif all(isinstance(entry, str) and entry not in WORDS for entry in then):
        # The first is the default; there may be more than before.
        if values and (then[0] != now[:1][0] or not set(then) <= set(now)):
            yield f"{where}: expected {then} among {now}"
    elif len(then) != len(now):
        if values:
            yield f"{where}: expected {len(then)} entries, got {len(now)}"
    elif _numbers(then) is not None:
        numbers, scale = _numbers(now), max(map(_size, _numbers(then) or ()), default=0.0)
        if numbers is None or len(numbers) != len(_numbers(then) or ()):
            yield f"{where}: expected the shape of {then}, got {now}"
        elif values and not all(
            _is_close(a, b, unit, scale) for a, b in zip(_numbers(then) or (), numbers, strict=True)
        ):
            yield f"{where}: expected {then} within {2 * ROUNDINGS * unit * scale:.2g}, got {now}"
    else:
        for index, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{where}[{index}]", unit, values)


def _type(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    # Numbers that are not finite are strings.
    return (
        "number"
        if isinstance(value, int | float) or (isinstance(value, str) and value in WORDS)
        else type(value).__name__
    )


def _numbers(value: Any) -> list[Any] | None:
    """Return the numbers of nested lists, ``None`` if anything else is in them."""
    if not isinstance(value, list):
        return [value] if _type(value) == "number" else None
    parts = [_numbers(entry) for entry in value]
    return None if None in parts else [number for part in parts for number in part or ()]


def _size(value: Any) -> float:
    """Return the size of a number that is finite, else 0."""
    size = abs(value) if isinstance(value, int | float) else 0.0
    return size if math.isfinite(size) else 0.0


def _is_close(then: Any, now: Any, unit: float, scale: float) -> bool:
    # Sizes, indices and counts are integers, and the same.
    if then == now:
        return True
    if isinstance(then, str) or isinstance(now, str) or isinstance(then, int):
        return False
    return abs(then - now) <= 2 * ROUNDINGS * unit * scale
