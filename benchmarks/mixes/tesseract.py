"""The calls of Tesseract's client: shapes, values and derivatives. ``python tesseract.py URL ROUNDS``."""

import sys
import time

import numpy as np
from tesseract_core import Tesseract

SIZES = (10, 1000, 100_000)
LARGEST_JACOBIAN = 10


def main(url: str, rounds: int) -> None:
    """Print the seconds of the rounds and the number of calls."""
    op = Tesseract.from_url(url)
    calls, rng = 0, np.random.default_rng()

    def round_of_calls() -> int:
        count = 0
        for n in SIZES:
            x, v = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
            assert op.abstract_eval({"x": {"shape": [n], "dtype": "float32"}})["y"]["shape"] == [n]
            assert op.apply({"x": x})["y"].shape == (n,)
            assert op.vector_jacobian_product({"x": x}, ["x"], ["y"], {"y": v})["x"].shape == (n,)
            assert op.jacobian_vector_product({"x": x}, ["x"], ["y"], {"x": v})["y"].shape == (n,)
            count += 4
            if n <= LARGEST_JACOBIAN:
                assert op.jacobian({"x": x}, ["x"], ["y"])["y"]["x"].shape == (n, n)
                count += 1
        return count

    round_of_calls()
    began = time.perf_counter()
    for _ in range(rounds):
        calls += round_of_calls()
    print(time.perf_counter() - began, calls)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
