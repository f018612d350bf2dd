"""Hostile JSON: a valid document with some of its parts replaced, and its text damaged."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

# Texts that replace a value. Some are no JSON.
TEXTS = (
    *("NaN", "Infinity", "-Infinity", "-0", "1e400", "-1e400", "1e-400", "0x10", "01", "1.", ".5", "+1", "1_000"),
    *("null", "true", "false", "{}", "[]", "[[]]", '""', '"NaN"', "[[1],[2,3]]", "[[],[1]]", "[null]", "[true, 1]"),
    *(r'"\ud800"', r'"\udfff\ud800"', r'"\u0000"', r'"\uD83D"', '"\x01"', r'"\x"', '"', "'a'", "nul", "[1,]", "{,}"),
    *('{"a":1,"a":2}', '{"shape":[1],"dtype":"float32","data":[1],"data":[2]}', "2147483648", "-9223372036854775809"),
    *('{"dtype":"float32","shape":[-1],"data":[]}', '{"dtype":"float32","shape":[4294967296,4294967296],"data":[]}'),
    *('{"dtype":"complex128","shape":[1],"data":[1]}', '{"dtype":"float32","shape":[1],"base64":"AAA"}'),
    *('{"dtype":"float32","shape":[2],"base64":"AACAPwAAAEA=="}', '{"dtype":"bool","shape":[2],"data":[0,2]}'),
    *('{"dtype":"float32","shape":[0,9223372036854775807],"data":[]}', '{"__class__":"x"}', '"../../etc/passwd"'),
    *('{"object_type":"array","shape":[1],"dtype":"float64","data":{"buffer":"????","encoding":"base64"}}',),
    *('{"shape":[1e2],"dtype":"float32","data":[1]}', '"cpu:0"', '"gpu:99999999999"', '"float8"', "[0]", "[[0,1]]"),
)
KEYS = ("", "x", "y", "\ud800", "\x00", "__proto__", "inputs", "é" * 40, "a/b", "x" * 300, "x.vjp")
MAX_DEPTH, MAX_DIGITS, MAX_STRING = 100_000, 5_000, 100_000


def hostile_json(rng: random.Random, document: Any) -> bytes:
    """Return the text of a document with one to three parts replaced; a third of the texts are damaged too."""
    tree, texts = copy.deepcopy(document), dict[str, str]()
    for _ in range(rng.randint(1, 3)):
        tree = _replaced(rng, tree, texts)
    text = json.dumps(tree)
    for mark, raw in texts.items():
        text = text.replace(f'"{mark}"', raw)
    data = text.encode("utf-8", "surrogatepass")
    return rng.choice(DAMAGES)(rng, data) if rng.random() < 0.3 else data


def _replaced(rng: random.Random, tree: Any, texts: dict[str, str]) -> Any:
    """Return the tree with one random part replaced by a mark, whose text comes after the tree is written."""
    if isinstance(tree, dict) and tree and rng.random() < 0.85:
        key = rng.choice([*tree])
        match rng.randrange(8):
            case 0:
                del tree[key]
            case 1:
                tree[rng.choice(KEYS)] = tree.pop(key)
            case 2:
                tree[rng.choice(KEYS)] = _mark(rng, texts)
            case _:
                tree[key] = _replaced(rng, tree[key], texts)
        return tree
    if isinstance(tree, list) and tree and rng.random() < 0.6:
        if rng.random() < 0.3:
            return [*tree, *tree] if rng.random() < 0.5 else tree[:-1]
        index = rng.randrange(len(tree))
        tree[index] = _replaced(rng, tree[index], texts)
        return tree
    return _mark(rng, texts)


def _mark(rng: random.Random, texts: dict[str, str]) -> str:
    mark = f"@{len(texts)}@"
    texts[mark] = _text(rng)
    return mark


def _text(rng: random.Random) -> str:
    match rng.randrange(12):
        case 0:
            depth = int(10 ** rng.uniform(1, 5))
            opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ("[[", "]"), ("[", "")])
            return opening * min(depth, MAX_DEPTH) + "1" + closing * min(depth, MAX_DEPTH)
        case 1:
            return rng.choice("123456789-") + "9" * rng.randint(1, MAX_DIGITS) + rng.choice(["", ".5", "e9", "e-99999"])
        case 2:
            return json.dumps(rng.choice("aé\N{GRINNING FACE}\x7f") * rng.randint(1, MAX_STRING))
        case 3:
            return "[" + ",".join([rng.choice(["1", "-0.0", "1e30", "true"])] * rng.randint(1, 20_000)) + "]"
        case 4:
            return str(rng.choice([-1, 0, 1, 2, 64, 1 << 31, 1 << 53, 1 << 63, 1 << 64, 0.5, 1e38, 3.5e38, 1e308]))
        case _:
            return rng.choice(TEXTS)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))] if data else data


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _wrap(rng: random.Random, data: bytes) -> bytes:
    return rng.choice([b"\xef\xbb\xbf%s", b"[%s]", b"%s{}", b" \n%s\x00", b"// a\n%s", b"\xff%s", b"%s,"]) % data


def _encode(rng: random.Random, data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-16-be", "utf-32", "utf-7"]))


def _repeat(rng: random.Random, data: bytes) -> bytes:
    """Repeat the first member of the object: a duplicate key."""
    inner = data.strip()[1:-1]
    return b"{" + inner + b"," + inner + b"}" if rng.random() < 0.8 else data + data


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (_cut, _flip, _wrap, _encode, _repeat)
