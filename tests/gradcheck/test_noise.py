"""The noise of functions that cancel is measured; that of smooth functions, and of casts to float32, is not."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from app.gradcheck import rounding
from ops import Array
from pullback.gradcheck import noise

X = np.random.default_rng(7).uniform(-3, 3, 256)


def measured(function, x=X):
    leaves = {"x": x}
    points = noise.perturbations(leaves, {"x": 2.0**-52}, np.random.default_rng(0))
    return noise.measure([{"y": function(each["x"])} for each in points], {"y": function(x)})["y"]


@pytest.mark.parametrize("offset", [1e4, 1e7, 1e9])
def test_the_noise_of_a_sum_that_cancels_is_that_of_its_rounding(offset) -> None:
    # The error of a rounding is uniform within half a unit: its standard deviation is a unit divided by √12.
    unit = np.spacing(offset) / 12**0.5
    found = measured(lambda x: (x + offset) - offset)
    assert np.median(found) == pytest.approx(unit, rel=0.5)
    # No number is without, by chance.
    assert found.min() > unit / 20


@pytest.mark.parametrize("function", [np.sin, np.exp, np.square, lambda x: np.sin(10 * x), lambda x: x**7])
def test_a_smooth_function_has_the_noise_of_its_last_places(function) -> None:
    assert (measured(function) <= 64 * np.finfo(np.float64).eps * np.maximum(1, np.abs(function(X)))).all()


@pytest.mark.parametrize("kink", [0.0, 1.2, 1.2001, 1.2 * (1 + 2.0**-13)])
@pytest.mark.parametrize("seed", range(8))
def test_a_kink_is_no_noise(kink, seed) -> None:
    x = np.array([0.0, 1.2, 1.2, -0.4, 2.5]) + kink / 1e9
    leaves = {"x": x}
    points = noise.perturbations(leaves, {"x": 2.0**-52}, np.random.default_rng(seed))
    found = noise.measure([{"y": np.abs(each["x"] - kink)} for each in points], {"y": np.abs(x - kink)})["y"]
    assert found.max() < 1e-12


def rounded(x, dtype=np.float32):
    return x.astype(dtype).astype(np.float64)


@pytest.mark.parametrize("function", [lambda x: rounded(np.cos(x)), lambda x: np.exp(rounded(x)), rounded])
def test_the_digits_of_float32_are_no_noise(function) -> None:
    assert np.median(measured(function)) < 1e-12


def test_the_digits_of_float16_are_no_noise() -> None:
    assert np.median(measured(lambda x: rounded(np.cos(x), np.float16))) < 1e-12


def test_equal_numbers_move_alike_and_zero_stays() -> None:
    x = np.array([1.5, 0.0, 1.5, 2.5])
    for moved in noise.perturbations({"x": x}, {"x": 2.0**-52}, np.random.default_rng(0)):
        assert moved["x"][0] == moved["x"][2]
        assert moved["x"][1] == 0


def test_at_special_points_the_noise_of_a_narrower_dtype_counts() -> None:
    def rounded(sets):
        return [{"y": leaves["x"].astype(np.float32).astype(np.float64)} for leaves in sets]

    leaves, rng = {"x": np.linspace(0.5, 3, 200)}, np.random.default_rng(0)
    regular, special = (
        rounding.measure(rounded, leaves, rng, elementwise=True, terms={"y": np.zeros(200)}, noise_floors=floors)
        for floors in (None, {"y": 0.0})
    )
    assert regular.noises["y"] == 0
    assert special.noises["y"] > 1e-9
    assert np.median(special.bounds["y"]) > 1e4 * np.median(regular.bounds["y"])


def test_a_number_that_shows_no_noise_by_chance_has_that_of_the_others() -> None:
    rng = np.random.default_rng(0)

    def evaluate(every: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        found = [{"y": leaves["x"] * (1 + 1e-9 * rng.normal(size=leaves["x"].shape))} for leaves in every]
        for values, leaves in zip(found, every, strict=True):
            values["y"][3] = leaves["x"][3]
        return found

    x = np.linspace(1.0, 2.0, 12)
    found = rounding.measure(evaluate, {"x": x}, rng, elementwise=True, terms={"y": np.zeros(12)}).bounds["y"] / x
    assert found[3] == pytest.approx(np.median(found), rel=0.5)
