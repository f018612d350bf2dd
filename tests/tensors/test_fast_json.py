"""The fast parser gives the same arrays and the same errors as the strict parser."""

import base64
import binascii
import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.errors import Malformed, Unprocessable
from app.tensors import casting, fast_json, skeletons, strict_json
from app.tensors.casting import Document, NumberList, Numbers, Source
from app.tensors.json import Decoded, decode

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int64", "uint64", "bool")


# In a long body, everything but field names and shapes counts as long; in a short one, all runs or none do.
LIMITS: dict[str, dict[str, int]] = {
    "long body": {"LONG": 24, "SHORT_BODY": 0},
    "short body, long runs": {"LONG_RUN": 24},
    "short body": {},
}


@pytest.fixture(autouse=True, scope="module", params=LIMITS)
def _limits(request):
    """Run all cases with each of the limits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS[request.param].items():
            patch.setattr(skeletons if name == "LONG_RUN" else fast_json, name, value)
        patch.setattr(casting, "PART", 6)
        yield


def read(parse, raw: bytes) -> Any:
    """Return the document, or the detail of its error."""
    try:
        return parse(bytearray(raw))
    except Malformed as error:
        return error.detail


def decoded(value: Any, dtype: str) -> Any:
    try:
        array = decode(value, dtype, ("x",))
    except Unprocessable as error:
        return [(entry.loc, entry.message, entry.expected, entry.got) for entry in error.entries]
    assert array.flags.c_contiguous
    return array.dtype.name, array.shape, array.tobytes()


def tensors(document: Any) -> list[Any]:
    named = [document.get(field) for field in fast_json.FIELDS] if isinstance(document, dict) else []
    return [value for tensors in named if isinstance(tensors, dict) for value in tensors.values()]


def canonical(tree: Any) -> Any:
    """Return a document in one canonical form: numbers with their types, base64 re-encoded."""
    match tree:
        case Numbers():
            return canonical(orjson.loads(tree.text))
        case Decoded():
            return canonical(base64.b64encode(tree.raw).decode())
        case dict():
            return {name: canonical(value) for name, value in tree.items()}
        case list():
            return [canonical(value) for value in tree]
        case str() if is_base64(tree):
            return base64.b64encode(binascii.a2b_base64(tree, strict_mode=True)).decode()
        case _:
            return repr(tree)


def is_base64(text: str) -> bool:
    try:
        return bool(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:
        return False


def agree(raw: bytes) -> Any:
    """Compare both parsers; return the document of the fast one."""
    fast, strict = read(fast_json.parse, raw), read(strict_json.parse, raw)
    assert canonical(fast) == canonical(strict), raw
    for one, other in zip(tensors(fast), tensors(strict), strict=True):
        for dtype in DTYPES:
            assert decoded(one, dtype) == decoded(other, dtype), (raw, dtype)
    for source in sources_of(fast):
        check_source(raw, source)
    return fast


def sources_of(tree: Any) -> tuple[Source, ...]:
    """Return the sources of a document; what the strict parser has read, or refused, has none."""
    return tree.sources if isinstance(tree, Document) else ()


def check_source(raw: bytes, source: Source) -> None:
    """Check that the numbers of a source, or its base64, are where it says."""
    text = raw.decode()
    if isinstance(source, Decoded):
        if source.start >= 0:
            place = slice(source.start, source.start + source.length)
            # The last digit may have bits that count for nothing, so that another text has the same bytes.
            assert binascii.a2b_base64(raw[place], strict_mode=True) == source.raw
            assert raw[place.start - 1 : place.start] == raw[place.stop : place.stop + 1] == b'"'
    else:
        assert isinstance(source, NumberList | Numbers)
        run, _ = json.JSONDecoder(parse_int=integer).raw_decode(text, len(raw[: source.start].decode()))
        mine = orjson.loads(source.text) if isinstance(source, Numbers) else source
        numbers = flat(mine)
        assert flat(run)[source.first :][: len(numbers)] == numbers


def integer(text: str) -> int | float:
    """Return an integer as orjson does: as a float if it does not fit into 64 bits."""
    return number if -(2**63) <= (number := int(text)) < 2**64 else float(number)


def flat(tree: Any) -> list[str]:
    """Return the numbers in nested lists, as text."""
    return [number for item in tree for number in flat(item)] if isinstance(tree, list) else [repr(tree)]


INTEGERS = st.integers(-(2**65), 2**65) | st.integers(-300, 300)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.floats(width=32, allow_nan=False, allow_infinity=False)
WORDS = st.sampled_from(["-0", "-0.0", "1E5", "1e+5", "1e400", "1e-400", "01", "1.", ".5", "+1", "0x1", "NaN", "true"])
FINE = (st.integers(-(2**62), 2**62) | st.integers(-300, 300) | FLOATS).map(json.dumps) | st.sampled_from(["-0", "1E5"])
NUMBERS = INTEGERS.map(json.dumps) | FINE | WORDS
BOOLS = st.sampled_from(["true", "false"] * 10 + ["1", "null", "True", '"true"', "[true]"])
SPACE = st.sampled_from(["", "", " ", "\n", " \t\r\n"])


def joined(draw, items: list[str]) -> str:
    comma = draw(SPACE) + "," + draw(SPACE)
    return f"[{draw(SPACE)}{comma.join(items)}]"


@st.composite
def lists(draw) -> str:
    numbers = draw(st.sampled_from([FINE, FINE, FINE, BOOLS, NUMBERS]))
    return joined(draw, draw(st.lists(numbers, min_size=draw(st.sampled_from([0, 10])), max_size=14)))


@st.composite
def typed(draw) -> str:
    dtype = draw(st.sampled_from(DTYPES))
    if draw(st.booleans()):
        data = draw(lists())
        shape = draw(st.sampled_from([[data.count(",") + 1], [1, data.count(",") + 1], [3]]))
        return f'{{"dtype":"{dtype}","shape":{shape},"data":{data}}}'
    raw = draw(st.binary(max_size=40))
    return f'{{"dtype":"{dtype}","shape":[{len(raw) // np.dtype("f4").itemsize}],"base64":{draw(strings(raw))}}}'


@st.composite
def strings(draw, raw: bytes) -> str:
    text = base64.b64encode(raw).decode()
    odd = [text.rstrip("="), text + "\n", text[:-1] + "B", text.lower(), "a-_b"]
    return json.dumps(draw(st.sampled_from([text] * 10 + odd)))


@st.composite
def nested(draw, item=FINE) -> str:
    """Draw nested lists of a few levels; most are tensors, and some differ in a length or a level."""
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))

    def level(sizes: list[int]) -> str:
        if not sizes:
            return draw(item)
        size = sizes[0] + draw(st.sampled_from([0] * 60 + [-1, 1]))
        rest = sizes[1:] if draw(st.integers(0, 60)) else sizes[2:]
        return joined(draw, [level(rest) for _ in range(max(size, 0))])

    return level(shape)


NONFINITE = st.sampled_from(['"NaN"', '"Infinity"', '"-Infinity"'])
WITH_WORDS = FINE | NONFINITE | st.sampled_from(['"nan"', '"1"', '"NaN "', "null", '""'] + ["1.5"] * 20)
VALUES = (
    typed()
    | typed()
    | lists()
    | nested()
    | nested(WITH_WORDS)
    | st.lists(lists(), max_size=3).map(lambda rows: f"[{','.join(rows)}]")
    | NUMBERS
)
PLACES = st.sampled_from([*fast_json.FIELDS * 5, "attrs", "wrt", "a[b", 'a\\"b', "AAAA"])


@st.composite
def bodies(draw) -> str:
    def field() -> str:
        names = draw(st.lists(st.sampled_from("xyz"), max_size=3, unique=draw(st.booleans())))
        named = ",".join(f'"{name}":{draw(VALUES)}' for name in names)
        return draw(st.sampled_from([f"{{{named}}}"] * 5 + [draw(VALUES)]))

    places = draw(st.lists(PLACES, max_size=4, unique=draw(st.sampled_from([True, True, False]))))
    fields = [f'"{place}":{draw(SPACE)}{field()}' for place in places]
    return f"{{{','.join(fields)}}}"


@st.composite
def fast_bodies(draw) -> str:
    """Draw a body with a tensor that takes the fast path, beside a list of bools that does not."""
    raw, numbers = draw(st.binary(min_size=18, max_size=40)), draw(st.lists(FINE, min_size=12, max_size=16))
    tensor = draw(
        st.sampled_from(
            [
                joined(draw, numbers),
                joined(draw, [joined(draw, numbers[:6]), joined(draw, numbers[6:12])]),
                joined(draw, ['"-Infinity"', *numbers, '"NaN"']),
                f'{{"dtype":"float64","shape":[{len(numbers)}],"data":{joined(draw, numbers)}}}',
                f'{{"dtype":"int8","shape":[{len(raw)}],"base64":"{base64.b64encode(raw).decode()}"}}',
            ]
        )
    )
    bools = st.lists(st.sampled_from(["true", "false"]), max_size=8)
    mask = joined(draw, [*draw(bools), "true", *draw(bools)])
    named = draw(st.permutations([f'"x":{draw(SPACE)}{tensor}', f'"mask":{draw(SPACE)}{mask}']))
    return f'{{"{draw(st.sampled_from(fast_json.FIELDS))}":{{{",".join(named)}}}}}'


def is_fast(document: Any) -> bool:
    """Return whether a tensor of the document took the fast path."""
    values = [list(x.values()) if isinstance(x, dict) else [x] for x in tensors(document)]
    return any(isinstance(one, Source) for value in values for one in value)


def is_beside_bools(document: Any) -> bool:
    values = [list(x.values()) if isinstance(x, dict) else [x] for x in tensors(document)]
    return is_fast(document) and any(isinstance(one, list) and True in one for value in values for one in value)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(bodies(), fast_bodies())
@example(
    '{"inputs":{"x":{"dtype":"float16","shape":[1],"data":[-9223372036854775809]}}}',
    '{"inputs":{"x":[0,0,0,0,0,0,0,0,0,0,0,0],"mask":[true]}}',
)
@example(
    '{"inputs":{"y":{"dtype":"float16","shape":[0],"base64":"aa=="}}}',
    '{"inputs":{"x":[0,0,0,0,0,0,0,0,0,0,0,0],"mask":[true]}}',
)
def test_both_parsers_agree(body: str, fast: str):
    agree(body.encode())
    assert is_beside_bools(agree(fast.encode()))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(bodies(), st.data())
def test_both_parsers_agree_on_broken_bodies(body: str, data):
    at = data.draw(st.integers(0, len(body)))
    noise = st.sampled_from([*'",:[]{}\\0-.e ', "\\u0022", ",,", "[]", "\x00", "ä", "null", '"NaN"', '":"', "[[[["])
    cut = data.draw(st.sampled_from([0, 0, 1, 5]))
    agree((body[:at] + data.draw(noise) + body[at + cut :]).encode())


ROW = b"[1.0,2,3,4,5,6,7,8,9,10,11,12]"
TEXT = base64.b64encode(bytes(24))


def test_lists_inside_lists_of_tensors_take_the_fast_path():
    raw = b'{"inputs":[{"name":"x","data":%b},{"name":"z","data":%b}],"outputs":[]}' % (ROW, ROW)

    def places(request):
        return ((item, "data", Numbers) for item in request["inputs"])

    found = fast_json.parse(bytearray(raw), places)
    assert all(isinstance(item["data"], Source) for item in found["inputs"])
    assert len(found.sources) == 2
    assert found["outputs"] == []


def test_numbers_and_base64_take_the_fast_path():
    raw = b'{"inputs":{"x":{"dtype":"int8","shape":[12],"data":%b},"y":%b},"cotangents":{"y":%b}}'
    found = agree(raw % (ROW, ROW, b'{"dtype":"float32","shape":[6],"base64":"%b"}' % TEXT))
    assert isinstance(found["inputs"]["x"]["data"], Source)
    assert isinstance(found["inputs"]["y"], Source)
    assert isinstance(found["cotangents"]["y"]["base64"], Decoded)
    assert [source.start >= 0 for source in sources_of(found)] == [True] * 3


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":{"x":[1,2,3,4,5,6,7,8,9,10,11,12],"x":[1,2,3,4,5,6,7,8,9,10,11,12]}}',
        b'{"inputs":{"x":{"dtype":"float32","shape":[4],"data":[1,2,3,4,5,6,7,8,9,10,11,12],"data":[6,7,8,9,10,11,12,13,14,15,16]}}}',
        b'{"inputs":{"x":[[1,2,3,4,5,6,7,8,9,10,11,12],[5,6,7,8,9,10,11,12,13,14,15]]}}',
        b'{"inputs":{"x":[1,2,3,4,5,6,7,8,9,10,11,12],"y":["[5,6,7,8,9,10,11,12,13,14,15]",1]}}',
        b'{"inputs":{"x":"[1,2,3,4,5,6,7,8,9,10,11,12]"}}',
        b'{"inputs":{"x":"a\\",[1,2,3,4,5,6,7,8,9,10,11,12]"}}',
        b'{"inputs":{"x":[1,2,3,,,,,,,,,,,,,,,,,,,,,4,5]}}',
        b'{"inputs":{"x":[1,2,3,4,5,6,7,8,9,10,11,12,]}}',
        b'{"inputs":{"x":[1,2,3,4,5,6,7,8,9,10,11,12] [1,2,3,4,5,6,7,8,9,10,11,12]}}',
        b'{"inputs":{"x":[1,{},3,4,5,6,7,8,9,10,11,12,13]}}',
        b'{"inputs":{"x":[1,2,3,4,5,6,7,8,9,10,11,null]}}',
        b'{"inputs":{"x":[                              ]}}',
        b'{"inputs":{"AAAAAAAAAAAAAAAAAAAAAAAAAAAA":[1]}}',
        b'{"inputs":{"x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAA","y":{"data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}}',
        b'{"inputs":{"x":{"base64":[1,2,3,4,5,6,7,8,9,10,11,12],"shape":[1],"dtype":"int8"}}}',
        b'{"inputs":{"x":["AAAAAAAAAAAAAAAAAAAAAAAAAAAA"]}}',
        b'{"attrs":{"x":[1,2,3,4,5,6,7,8,9,10,11,12,13]}}',
        b'["AAAAAAAAAAAAAAAAAAAAAAAAAAAA",[1,2,3,4,5,6,7,8,9,10,11,12]]',
        b"[1,2,3,4,5,6,7,8,9,10,11,12,13]",
        b'{"inputs":{"x":1.00000000000000000000000000}}',
        b'{"inputs":]1,2,3,4,5,6,7,8,9,10,11,12[}',
        b'"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"',
        b" " * 40,
        b'{"inputs":{"x":[1,2,3,4,5,6,7,8,9,10,11,12',
        b'{"inputs":{"x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAA',
        b"\xff" * 40,
        b'{"inputs":{"x":{"dtype":"int8","shape":[3],"base64":"AAAAAAAAAAA\xff"}}}',
    ],
)
@pytest.mark.parametrize("part", [6, 1 << 16])
def test_unusual_bodies_are_left_to_the_strict_parser(monkeypatch, body: bytes, part: int):
    monkeypatch.setattr(casting, "PART", part)
    agree(body)


@pytest.mark.parametrize("part", range(6, 30))
def test_an_extra_comma_is_refused_at_every_part_boundary(monkeypatch, part: int):
    monkeypatch.setattr(casting, "PART", part)
    for numbers in (
        ROW[:-1] + b",]",
        ROW[:-1] + b",   ]",
        ROW.replace(b"7", b" " * 30),
        b"[" + b" " * 40 + b"," + ROW[1:],
    ):
        assert "not JSON" in agree(b'{"inputs":{"x":%b}}' % numbers)


@pytest.mark.parametrize("noise", [b"-", b" ", b"=", b"!", b"----", b"    ", b"\n", b"\xc3\xa4"])
def test_only_strict_base64_takes_the_fast_path(noise: bytes):
    for at in (0, 5, len(TEXT) - 6):
        text = TEXT[:at] + noise + TEXT[at + len(noise) :]
        found = agree(b'{"inputs":{"x":{"dtype":"int8","shape":[24],"base64":"%b"}}}' % text)
        assert isinstance(found, str) or type(found["inputs"]["x"]["base64"]) is str


BOOLS_ROW = b"[true,false,true,false,true]"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("blanks", [b"", b" \n\t\r ", b" " * 100])
def test_bools_are_left_to_the_strict_parser(blanks: bytes, first: bool):
    raw = b'{"inputs":{"x":%b,"mask":%b},"cotangents":{"y":%b}}'
    mask = [first, *[False, True] * 4]
    found = agree(raw % (ROW, b"[" + blanks + json.dumps(mask).encode()[1:], ROW))
    assert found["inputs"]["mask"] == mask
    # Numbers beside them still take the fast path.
    assert isinstance(found["inputs"]["x"], Source)


@pytest.mark.parametrize(
    "bad", [b"1", b"0.5", b'"true"', b"null", b"True", b"tru", b"[true]", b"{}", b"", b"truefalse"]
)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_errors_among_bools_are_those_of_the_strict_parser(bad: bytes, at: int):
    words = BOOLS_ROW[1:-1].split(b",")
    words[at] = bad
    agree(b'{"inputs":{"x":%b,"mask":[%b]}}' % (ROW, b",".join(words)))


def test_marks_cannot_be_forged():
    mark = f"{fast_json._MARK}.0"
    assert agree(f'{{"inputs":{{"x":["{mark}"]}}}}'.encode())["inputs"]["x"] == [mark]


def test_the_bracket_limit_holds_for_both_parsers(monkeypatch):
    monkeypatch.setattr(strict_json, "MAX_BRACKETS", 4)
    assert isinstance(agree(b'{"inputs":{"x":%b,"y":%b}}' % (ROW, ROW)), dict)
    assert "more than 4 brackets" in agree(b'{"inputs":{"x":%b,"y":%b,"z":[]}}' % (ROW, ROW))


def test_bodies_with_many_strings_take_the_strict_parser(monkeypatch):
    monkeypatch.setattr(fast_json, "MAX_VALUES", 5)
    monkeypatch.setattr(skeletons, "MAX_RUNS", 2)
    found = agree(b'{"inputs":{"x":%b,"y":%b},"wrt":["x"]}' % (ROW, ROW))
    assert type(found["inputs"]["x"]) is list


def vectors(request: dict[str, Any]) -> list[fast_json.Place]:
    return [(request, "input", list), (request, "sens", Numbers)]


@pytest.mark.parametrize(
    ("rows", "firsts"),
    [
        ("[[1.5,2.5,3.5,4.5,5.5,6.5,7.5]]", [0]),
        ("[ [1.5,2.5,3.5,4.5,5.5,6.5,7.5] , [2.5] ,[3.5,4]]", [0, 7, 8]),
        ("[[1.5,2.5,3.5,4.5,5.5,6.5,7.5],[]]", None),
        ("[[1.5,2.5,3.5,4.5,5.5,6.5,7.5],[[1.5]]]", None),
        ("[[1.5,2.5,3.5,4.5,5.5,6.5,7.5],8.5]", None),
        ("[1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5]", None),
        ("[[1.5,2.5,3.5,4.5,5.5,6.5,7.5],null]", None),
    ],
)
def test_rows_know_their_places(rows: str, firsts: list[int] | None):
    raw = f'{{"sens":[0.25,3.5,4.5,5.5,6.5,7.5,8.5],"input":{rows}}}'.encode()
    fast, strict = fast_json.parse(raw, vectors), strict_json.parse(raw)
    assert canonical(fast) == canonical(strict)
    sources = sources_of(fast)
    for source in sources:
        check_source(raw, source)
    if firsts is not None:
        assert [(each.start, each.first) for each in sources] == [
            *((raw.index(rows.encode()), first) for first in firsts),
            (raw.index(b"[0.25"), 0),
        ]


@pytest.mark.parametrize("depth", [8, 9, 999, 1000, 1001, 1018, 1021, 1022, 1023, 1024, 1025])
def test_deep_lists_are_refused_as_by_the_strict_parser(depth: int):
    raw = b'{"inputs":{"x":%b1.5%b}}' % (b"[" * depth, b"]" * depth)
    fast, strict = read(fast_json.parse, raw), read(strict_json.parse, raw)
    assert isinstance(fast, str) == isinstance(strict, str) == (depth > 1022)
    if isinstance(fast, str):
        assert fast == strict
    else:
        assert decoded(fast["inputs"]["x"], "float32") == decoded(strict["inputs"]["x"], "float32")


def test_few_texts_are_located():
    """To search the body for each of many would take quadratic time."""
    named = ",".join(f'"{number}":{{"base64":"{number:04}"}}' for number in range(1000))
    sources = fast_json.parse(f'{{"inputs":{{{named}}}}}'.encode()).sources
    assert sum(source.start >= 0 for source in sources) <= skeletons.MAX_RUNS


LONG_TEXT = base64.b64encode(bytes(range(24))).decode()


@pytest.mark.parametrize(
    ("text", "more", "is_known"),
    [
        (LONG_TEXT, "", True),
        (LONG_TEXT, ',"note":"AAAA"', True),
        (LONG_TEXT, f',"note":"{LONG_TEXT}"', False),
        (LONG_TEXT.replace("A", "\\u0041", 1), f',"note":"{LONG_TEXT}"', False),
        (LONG_TEXT, ',"note":"\\n"', False),
    ],
)
def test_base64_with_a_twin_or_an_escape_has_no_place(text: str, more: str, is_known: bool):
    found = agree(f'{{"inputs":{{"x":{{"dtype":"int8","shape":[24],"base64":"{text}"}}}}{more}}}'.encode())
    starts = [source.start for source in sources_of(found)]
    assert all(start >= 0 for start in starts) if is_known else set(starts) <= {-1}
