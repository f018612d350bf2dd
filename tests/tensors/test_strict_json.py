"""JSON documents: strictness, positions, cures, and the cost of hostile bodies."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import Malformed
from app.tensors import strict_json
from app.tensors.strict_json import MAX_BRACKETS, dumps, parse

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text())
DOCUMENTS = st.recursive(
    SCALARS.filter(lambda v: v not in (float("inf"), float("-inf"))),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(":a\\\"'", max_size=3), inner)),
    max_leaves=10,
)


def refusal(body):
    with pytest.raises(Malformed) as caught:
        parse(body)
    return caught.value.detail


@settings(max_examples=60, deadline=None, database=None)
@given(DOCUMENTS, st.sampled_from([bytes, bytearray, memoryview]))
def test_dumped_documents_are_parsed(document, kind):
    assert parse(kind(dumps(document))) == document
    assert json.loads(dumps(document)) == document


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is empty: send a JSON document"),
        (b" \n\t", "the body is empty: send a JSON document"),
        (b'{"x": [1, 2', "line 1 column 12: the JSON document is truncated: send all of it"),
        (b'{"x": [1,\n  NaN]}', "line 2 column 3: JSON has no NaN: "),
        (b"[nan]", "line 1 column 2: JSON has no nan: "),
        (b"[1, -Infinity]", "line 1 column 6: JSON has no -Infinity: "),
        (b"[inf]", "line 1 column 2: JSON has no inf: "),
        (b'{"x": 1e400}', "line 1 column 7: the number overflows float64: "),
        (b'{"x": -1e400}', "line 1 column 7: the number overflows float64: "),
        (b"9" * 400, "line 1 column 1: the number overflows float64: "),
        (b'{"\xc3\xa9": 1,\n "\xc3\xa9\xff": 1}', "line 2 column 4: the body is not UTF-8"),
        (b"\xff\xfe{\x00", "line 1 column 1: the body is not UTF-8"),
        (b"\xef\xbb\xbf1", "line 1 column 1: not JSON: UTF-8 byte order mark"),
        (b"{'x': 1}", "line 1 column 2: not JSON: "),
        (b"[1,]", "line 1 column 3: not JSON: trailing comma"),
        (b"[01]", "line 1 column 2: not JSON: "),
        (b"[1] [2]", "line 1 column 5: not JSON: unexpected content after document"),
        (b"[True]", "line 1 column 2: not JSON: "),
        (b'"\\ud800"', "line 1 column 2: not JSON: "),
    ],
)
def test_malformed_json_is_refused_with_its_position(body, detail):
    assert refusal(body).startswith(detail)
    assert refusal(memoryview(body)).startswith(detail)


@settings(max_examples=200, deadline=None, database=None)
@given(st.binary(max_size=30))
def test_any_bytes_are_parsed_or_refused(body):
    try:
        document = parse(body)
    except Malformed:
        return
    json.loads(body)
    assert dumps(document)


@pytest.mark.parametrize("body", [b"[", b"{", b'{"a":', b"[[],[],", b'[{"a":1},', b"[" * 50_000 + b"{" * 50_000])
def test_brackets_are_counted_before_parsing(body, monkeypatch):
    hostile = (body * (16_000_000 // len(body)))[:16_000_000]
    monkeypatch.setattr(strict_json, "orjson", None)  # parsing this would take seconds, so it must be refused before
    assert "more than 100000 brackets" in refusal(hostile)
    assert "base64" in refusal(hostile)


def test_the_allowed_number_of_brackets_is_parsed():
    body = b"[" + b"[]," * (MAX_BRACKETS - 2) + b"[]]"
    assert len(parse(body)) == MAX_BRACKETS - 1
    refusal(b"[" + body + b"]")


@pytest.mark.parametrize("far", [1 << 20, (1 << 20) - 1, 3 << 20])
def test_brackets_are_counted_everywhere(far):
    half = b"[]," * (MAX_BRACKETS // 2)
    assert "brackets" in refusal(b"[" + half + b" " * far + half + b"0]")


@pytest.mark.parametrize("bracket", [b"[", b"{"])
@pytest.mark.parametrize("place", [(1 << 20) - 1, 1 << 20])
def test_a_bracket_at_the_edge_of_a_slice_counts(place, bracket):
    body = (b"[" * MAX_BRACKETS).ljust(place) + bracket
    assert "brackets" in refusal(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_refused(opening):
    closing = b"]" if opening == b"[" else b"}"
    assert "depth limit" in refusal(opening * 2000 + b"1" + closing * 2000)
    assert "depth limit" in refusal(opening * 99_999)
    parse(opening * 1000 + b"1" + closing * 1000)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"x": 1, "x": 2}', "x"),
        (b'{"x": 1, "y": {"b": 1, "a": [1], "b": 1}}', "b"),
        (b'{"x": [{"a": 1}, {"a": 1, "a": 2}]}', "a"),
        (b'{"x": [[1, 2]], "device": "gpu:0", "x": 3}', "x"),
        (b'{"a:b": 1, "a:b": 1}', "a:b"),
        (b'{"x" \n : 1, "x": 1}', "x"),
        (b'{"x": 1, "\\u0078": 1}', "x"),
        (b'{"x": ["a:b", "c"], "x": "a:b"}', "x"),
    ],
)
def test_a_duplicate_key_is_refused(body, name):
    assert refusal(body) == f'duplicate key "{name}" in one object: send it once'


def test_a_duplicate_key_in_a_large_document_is_refused():
    body = b'{"x": [' + b"1, " * 500_000 + b'1], "x": 1}'
    assert refusal(body) == "duplicate key in one object: send it once"


def test_a_duplicate_key_too_deep_for_the_slower_parser_is_refused():
    body = b'{"x": 1, "x": ' + b"[" * 1015 + b"]" * 1015 + b"}"
    assert "duplicate key" in refusal(body)


@settings(max_examples=60, deadline=None, database=None)
@given(DOCUMENTS)
def test_unique_keys_are_accepted(document):
    body = json.dumps({"document": document, "a:": [1, document, "NaN"]}).encode()
    assert parse(body) == json.loads(body)


@pytest.mark.parametrize(
    "body", [b'{"x": ["gpu:0", "a"]}', b'{"x": [["a", "b:c"]]}', b'[1, "a:b", null]', b'["a:", {"b:": ":c"}, [":"]]']
)
def test_colons_in_strings_are_not_counted_as_keys(body):
    assert parse(body) == json.loads(body)


def test_values_without_a_json_form_are_refused():
    with pytest.raises(TypeError):
        dumps({"x": object()})
    assert dumps({"x": np.float32(0.1), "y": np.arange(3)}) == b'{"x":0.1,"y":[0,1,2]}\n'
