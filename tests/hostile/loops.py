"""Loops: requests that differ only in their numbers, in every protocol, format and dtype, with numbers of every kind.

A loop begins with numbers of one kind, until the fast path has a template, and goes on with numbers of others.
"""

import base64
import gzip
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.tensors import safetensors
from tests.fast_path.wire import post, with_head
from tests.http.openinference_client import LENGTH, OCTETS, binary

# The last three are not elementwise, or have a kernel in C++.
OPS = ("log1pexp", "square", "sign", "scale_gradient", "safe_norm", "zero_out", "relu")
OPERATIONS = ("forward", "vjp", "jvp", "hvp", "gradients")
DTYPES = ("float32", "float64")
SAFETENSORS = "application/vnd.safetensors"
SHAPES = ((1,), (2,), (3,), (7,), (50,), (2, 3), (3, 1), (1, 1), (2, 2, 2), (300,), (70, 2), (1100,), (2100, 2))
# How a client may write numbers; some overflow, some are not JSON.
WORDS = (
    *("0", "-0", "0.0", "-0.0", "-0e0", "5e-324", "-1e-46", "1.4e-45", "1e-400", "1E5", "1e+5", "12e-1", "1.0e00", "7"),
    *("3.4028234663852886e38", "3.4028235677973366e38", "-3.4028235677973367e38", "1e39", "1.7976931348623157e308"),
    *(
        "1e309",
        "1" * 310,
        "-" + "9" * 39,
        "16777217",
        "9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
    ),
    *("0.1000000000000000055511", "7.038531e-26", "1.00000005960464477539062500001", "1e22", "1e23", " 1.5 ", "\t1.5"),
    *("NaN", '"NaN"', '"-Infinity"', '"1"', "null", "true", "[]", "[1.5]", "", "1.5,", "01", "1.", ".5", "+1", "1_0"),
)
Texts = list[str]
Kind = Callable[[random.Random], str]


def _bits(code: str, fmt: str, size: int) -> Kind:
    def number(rng: random.Random) -> str:
        (value,) = struct.unpack(fmt, rng.randbytes(size))
        return repr(value) if abs(value) <= 1.7e308 else code

    return number


KINDS: Mapping[str, Kind] = {
    "round": lambda rng: repr(rng.randrange(-64, 64) / 8),
    "halves": lambda rng: repr(rng.randrange(-9, 9) + 0.5),
    "integers": lambda rng: str(rng.randrange(-99, 99)),
    "whole": lambda rng: repr(float(rng.randrange(-99, 99))),
    "ragged": lambda rng: repr(rng.uniform(-3, 3)),
    "short": lambda rng: repr(round(rng.uniform(-9, 9), rng.randrange(1, 6))),
    "exponents": lambda rng: f"{rng.uniform(-9, 9):.{rng.randrange(9)}e}".replace("e", rng.choice("eE")),
    "wide": lambda rng: f"{rng.uniform(1, 9):.6g}e{rng.randrange(-45, 39)}",
    "float32": lambda rng: repr(float(np.float32(rng.uniform(-3, 3)))),
    "bits of float32": _bits("0.25", "<f", 4),
    "bits of float64": _bits("0.25", "<d", 8),
}


@dataclass(frozen=True)
class Loop:
    """A request without its numbers: ``make`` returns it for texts of numbers, two for each element."""

    make: Callable[[Texts, Texts], bytes]
    size: int

    def requests(self, rng: random.Random, count: int) -> Iterator[bytes]:
        """Yield requests: half of them with numbers of one kind, often round ones, then any, and words."""
        first = KINDS[rng.choice([*KINDS, "round", "halves", "whole"])]
        for number in range(count):
            kind = first if number < count // 2 else KINDS[rng.choice([*KINDS])]
            texts = [[kind(rng) for _ in range(self.size)] for _ in range(2)]
            if number > count // 2 and rng.random() < 0.3:
                texts[rng.randrange(2)][rng.randrange(self.size)] = rng.choice(WORDS)
            if rng.random() < 0.1:
                texts[1] = texts[0]
            yield self.make(*texts)


def any_loop(rng: random.Random, tag: str) -> Loop:
    """Return a random loop; ``tag`` is an additional header, or empty."""
    shape = rng.choice(SHAPES)
    size = int(np.prod(shape))
    form = rng.choice((_lists, _lists, _lists, _typed, _base64, _safetensors, _umbridge, _umbridge, _tesseract))
    form = rng.choice(
        (form, form, form, form, _inference, _binary_inference, _two_inputs, _two_vectors, _compressed, _labelled)
    )
    return Loop(form(rng, shape, rng.choice(DTYPES), (tag,) if tag else ()), size)


def nested(texts: Texts, shape: tuple[int, ...], comma: str = ",") -> str:
    """Return the text of nested lists of this shape."""
    for size in reversed(shape):
        texts = [f"[{comma.join(texts[start : start + size])}]" for start in range(0, len(texts), size)]
    return texts[0]


def _native(rng: random.Random) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return the path of a native operation, the fields of its tensors with their names, and its other fields."""
    operation = rng.choice(OPERATIONS)
    fields = {"inputs": "x"}
    direction = {"vjp": ("cotangents", "y"), "jvp": ("tangents", "x"), "hvp": ("vectors", "x")}.get(operation)
    if direction and (operation != "vjp" or rng.random() < 0.7):
        fields[direction[0]] = direction[1]
    others: dict[str, Any] = {}
    if rng.random() < 0.4:
        others["encoding"] = rng.choice(("nested", "flat", "base64"))
    if operation == "gradients" and rng.random() < 0.5:
        others["order"] = rng.choice((1, 2, 3))
    if operation == "vjp" and rng.random() < 0.3:
        others["outputs"] = True
    return f"/v1/ops/{rng.choice(OPS)}/{operation}", fields, others


def _in_json(rng: random.Random, dtype: str, tag: tuple[str, ...], tensor: Callable[[Texts], str]) -> Any:
    path, fields, others = _native(rng)
    rest = "".join(f',"{name}":{json.dumps(value)}' for name, value in (others | {"dtype": dtype}).items())

    def make(*texts: Texts) -> bytes:
        tensors = ",".join(
            f'"{f}":{{"{name}":{tensor(t)}}}' for (f, name), t in zip(fields.items(), texts, strict=False)
        )
        return post(path, f"{{{tensors}{rest}}}".encode(), "content-type: application/json", *tag)

    return make


def _lists(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    comma = rng.choice((",", ", ", ",\n"))
    return _in_json(rng, dtype, tag, lambda texts: nested(texts, shape, comma))


def _typed(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    inner = rng.choice((shape, (int(np.prod(shape)),)))
    head = f'{{"dtype":"{dtype}","shape":{list(shape)},"data":'
    return _in_json(rng, dtype, tag, lambda texts: f"{head}{nested(texts, inner)}}}")


def _array(texts: Texts, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values: list[float] = []
    for text in texts:
        try:
            values.append(float(text.strip('"')))
        except ValueError:
            values.append(0.3)
    with np.errstate(over="ignore"):
        return np.array(values).astype(dtype).reshape(shape)


def _base64(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    head = f'{{"dtype":"{dtype}","shape":{list(shape)},"base64":"'

    def tensor(texts: Texts) -> str:
        return f'{head}{base64.b64encode(_array(texts, shape, dtype).tobytes()).decode()}"}}'

    return _in_json(rng, dtype, tag, tensor)


def _safetensors(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    path, fields, others = _native(rng)
    lines = (f"content-type: {SAFETENSORS}", f"accept: {rng.choice((SAFETENSORS, 'application/json', '*/*'))}", *tag)

    def make(*texts: Texts) -> bytes:
        named = {f"{f}/{n}": _array(t, shape, dtype) for (f, n), t in zip(fields.items(), texts, strict=False)}
        body = b"".join(bytes(part) for part in safetensors.lay_out(named, others | {"dtype": dtype}).pieces())
        return with_head(path, lines, body)

    return make


def _umbridge(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    action, op = rng.choice(("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")), rng.choice(OPS)
    config = json.dumps({"shape": list(shape), "dtype": dtype} if rng.random() < 0.8 else {"shape": list(shape)})

    def make(x: Texts, y: Texts) -> bytes:
        one, other = nested(x, (len(x),)), nested(y, (len(y),))
        fields = {
            "Evaluate": "",
            "Gradient": f',"outWrt":0,"inWrt":0,"sens":{other}',
            "ApplyJacobian": f',"outWrt":0,"inWrt":0,"vec":{other}',
            "ApplyHessian": f',"outWrt":0,"inWrt1":0,"inWrt2":0,"sens":{other},"vec":{one}',
        }
        return post(f"/{action}", f'{{"name":"{op}","config":{config},"input":[{one}]{fields[action]}}}'.encode(), *tag)

    return make


def _two_inputs(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    """Return a request to an op of two inputs, in any order; the key of one may be escaped."""
    path, names = f"/v1/ops/{rng.choice(OPS)}.vjp/forward", [("x", 0), (rng.choice(("dy", "d\\u0079")), 1)]
    rng.shuffle(names)
    inner, comma = rng.choice((shape, (1, *shape))), rng.choice((",", " ,"))
    encoding = rng.choice(("nested", "flat", "base64"))

    def make(*texts: Texts) -> bytes:
        tensors = ",".join(f'"{name}":{nested(texts[i], inner, comma)}' for name, i in names)
        body = f'{{"inputs":{{{tensors}}},"dtype":"{dtype}","encoding":"{encoding}"}}'
        return post(path, body.encode(), "content-type: application/json", *tag)

    return make


def _labelled(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    """Return a request with integers, most of which are classes; the op checks their values."""
    operation = rng.choice(("forward", "vjp", "gradients"))

    def make(x: Texts, y: Texts) -> bytes:
        logits = nested([text for pair in zip(x, y, strict=True) for text in pair], (len(x), 2))
        labels = nested([text if "e" in text else str(len(text) % 2) for text in x], (len(x),))
        body = f'{{"inputs":{{"logits":{logits},"labels":{labels}}},"dtype":"{dtype}"}}'
        return post(f"/v1/ops/softmax_cross_entropy/{operation}", body.encode(), "content-type: application/json", *tag)

    return make


def _two_vectors(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    """Return a request of UM-Bridge with two vectors, which now and then differ in length."""
    op, config = f"{rng.choice(OPS)}.vjp", json.dumps({"shape": list(shape), "dtype": dtype})
    gradient = rng.choice(("", f',"outWrt":0,"inWrt":{rng.randrange(2)}'))

    def make(x: Texts, y: Texts) -> bytes:
        one, other = nested(x, (len(x),)), nested(y, (len(y),))
        rows = rng.choice([f"{one},{other}"] * 20 + [f"{one},[1.5]", one, f"{one},[{other}]", f"{one},{other},{one}"])
        rest = f'{gradient},"sens":{other}' if gradient else ""
        body = f'{{"name":"{op}","config":{config},"input":[{rows}]{rest}}}'
        return post("/Gradient" if gradient else "/Evaluate", body.encode(), *tag)

    return make


def _compressed(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    """Return a request whose body is compressed, at times in name only."""
    op, level = rng.choice(OPS), rng.choice((0, 0, 9))
    in_json = _inference(rng, shape, dtype, ())

    def make(x: Texts, y: Texts) -> bytes:
        body = in_json(x, y).partition(b"\r\n\r\n")[2]
        lines = ("content-type: application/json", "content-encoding: gzip", *tag)
        return with_head(f"/v2/models/{op}.vjp/infer", lines, gzip.compress(body, level, mtime=0))

    return make


def _tesseract(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    op, accept = rng.choice(OPS), rng.choice(("*/*", "application/json", "application/json+base64"))
    as_base64 = rng.random() < 0.5

    def array(texts: Texts) -> str:
        data = base64.b64encode(_array(texts, shape, dtype).tobytes()).decode()
        buffer = f'"{data}","encoding":"base64"' if as_base64 else f'{nested(texts, shape)},"encoding":"json"'
        return f'{{"object_type":"array","shape":{list(shape)},"dtype":"{dtype}","data":{{"buffer":{buffer}}}}}'

    def make(x: Texts, y: Texts) -> bytes:
        names = '"vjp_inputs":["x"],"vjp_outputs":["y"]'
        body = f'{{"inputs":{{"x":{array(x)}}},{names},"cotangent_vector":{{"y":{array(y)}}}}}'
        return post(f"/tesseract/{op}/vector_jacobian_product", body.encode(), f"accept: {accept}", *tag)

    return make


def _inference(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    op, datatype = rng.choice(OPS), {"float32": "FP32", "float64": "FP64"}[dtype]

    def tensor(name: str, texts: Texts) -> str:
        return (
            f'{{"name":"{name}","shape":{list(shape)},"datatype":"{datatype}","data":{nested(texts, (len(texts),))}}}'
        )

    def make(x: Texts, y: Texts) -> bytes:
        body = f'{{"inputs":[{tensor("x", x)},{tensor("dy", y)}]}}'
        return post(f"/v2/models/{op}.vjp/infer", body.encode(), "content-type: application/json", *tag)

    return make


def _binary_inference(rng: random.Random, shape: tuple[int, ...], dtype: str, tag: tuple[str, ...]) -> Any:
    op, in_binary = rng.choice(OPS), rng.random() < 0.7

    def make(x: Texts, y: Texts) -> bytes:
        tensors = {"x": _array(x, shape, dtype), "dy": _array(y, shape, dtype)}
        body, headers = binary(tensors, parameters={"binary_data_output": in_binary})
        lines = (f"content-type: {OCTETS}", f"{LENGTH}: {headers[LENGTH]}", *tag)
        return with_head(f"/v2/models/{op}.vjp/infer", lines, body)

    return make
