"""Which requests are kept, and what inputs they have."""

import json
from collections import Counter

import pytest

from pullback.errors import BadAnswer
from pullback.recorder import reservoir
from pullback.recorder.evaluations import Evaluations, input_of
from pullback.recorder.reservoir import Reservoirs

BODY = b'{"name":"a","input":[[1]]}'


def test_each_request_is_kept_with_the_same_probability() -> None:
    counts = Counter[int]()
    for seed in range(400):
        samples = Reservoirs(4, seed)
        for _ in range(40):
            samples.offer("a", "/Evaluate", BODY, None)
        ((_, found),) = samples
        assert found.seen == 40
        counts.update({sample.number for sample in found.kept})
        assert len(found.kept) == 4
    # 40 each are expected; the standard deviation is 6.
    assert set(counts) == set(range(1, 41))
    assert 15 < min(counts.values()) < max(counts.values()) < 75


def test_the_same_seed_draws_the_same() -> None:
    def numbers(seed: int) -> list[int]:
        samples = Reservoirs(3, seed)
        for i in range(100):
            samples.offer("ab"[i % 2], "/Evaluate", BODY, None)
        return [sample.number for _, found in samples for sample in found.kept]

    assert numbers(1) == numbers(1) != numbers(2)


def test_each_input_is_taken_once() -> None:
    samples = Reservoirs(3, 0)
    for i in range(3):
        samples.offer("a", "/Evaluate", b"%d" % i, None)
    ((_, found),) = samples
    taken = [found.take() for _ in range(4)]
    assert taken[3] is None
    assert {each.body for each in taken[:3] if each} == {b"0", b"1", b"2"}


def test_models_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = Reservoirs(2, 0)
    for i in range(reservoir.MAX_MODELS + 5):
        samples.offer(f"m{i}", "/Evaluate", BODY, None)
    assert len(list(samples)) == reservoir.MAX_MODELS
    assert samples.unkept == 5
    monkeypatch.setattr(reservoir, "MAX_BYTES", 100)
    samples = Reservoirs(5, 0)
    for _ in range(200):
        samples.offer("a", "/Evaluate", bytes(30), bytes(10))
    ((_, found),) = samples
    assert len(found.kept) == 2
    assert samples.unkept > 0


@pytest.mark.parametrize(
    ("protocol", "model", "target", "body", "expected"),
    [
        ("umbridge", "", "/um/Evaluate", b'{"name": "a", "input": [[1]]}', "a"),
        ("umbridge", "a", "/um/Gradient?x=1", b'{"config":{"name":"b"},"name":"a"}', "a"),
        ("umbridge", "b", "/um/Gradient", b'{"name": "a"}', None),
        ("umbridge", "", "/um/Info", b'{"name": "a"}', None),
        ("umbridge", "", "/Evaluate", b'{"name": "a"}', None),
        ("umbridge", "", "/um/Evaluate", b'{"name": 3}', None),
        ("umbridge", "", "/um/Evaluate", b'{"name": ["a"], "config": {"name": "b"}}', None),
        ("umbridge", "", "/um/Evaluate", b'{"name": "a\\u0062\\" c"}', 'ab" c'),
        ("umbridge", "", "/um/Evaluate", b"", None),
        ("tesseract", "", "/um/apply", b"{}", ""),
        ("tesseract", "", "/um/vector_jacobian_product", b"{}", ""),
        ("tesseract", "", "/um/health", b"{}", None),
        ("oip", "", "/um/v2/models/a%20b/infer", b"{}", "a b"),
        ("oip", "m", "/um/v2/models/m.vjp/versions/1/infer", b"{}", "m"),
        ("oip", "m", "/um/v2/models/m/ready", b"{}", None),
        ("oip", "m", "/um/v2/models/n/infer", b"{}", None),
        ("pullback", "", "/um/v1/ops/square/vjp", b"{}", "square"),
        ("pullback", "cube", "/um/v1/ops/square/vjp", b"{}", None),
        ("pullback", "", "/um/v1/ops/square/check", b"{}", None),
    ],
)
def test_which_model_a_request_evaluates(protocol, model, target, body, expected) -> None:
    evaluations = Evaluations(protocol, "/um", model)
    assert evaluations.model_of(target, body) == expected
    assert evaluations.are_at("POST", target) or expected is None
    assert not evaluations.are_at("GET", target)


def test_inputs_of_an_inference_may_be_flat_or_nested() -> None:
    tensors = [
        {"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]},
        {"name": "z", "shape": [2, 1], "datatype": "FP32", "data": [[1], [2]]},
    ]
    found = input_of("oip", {"inputs": tensors, "parameters": {"a": 1}})
    assert found.given == {"x": [[1], [2]], "z": [[1], [2]]}
    assert found.config == {"a": 1}


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("umbridge", []),
        ("umbridge", {"name": "a"}),
        ("tesseract", {"input": 1}),
        ("oip", {"inputs": {}}),
        ("oip", {"inputs": [{"name": "x"}]}),
        ("oip", {"inputs": [{"name": "x", "shape": [3], "data": [1]}]}),
        ("oip", {"inputs": [{"name": "x", "shape": ["a"], "data": [1]}]}),
    ],
)
def test_a_request_without_inputs(protocol, body) -> None:
    with pytest.raises(BadAnswer):
        input_of(protocol, json.loads(json.dumps(body)))
