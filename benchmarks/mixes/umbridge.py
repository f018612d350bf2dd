"""The calls of UM-Bridge's client: sizes, values and all three derivatives. ``python umbridge.py URL ROUNDS``."""

import random
import sys
import time

import umbridge

SIZES = (2, 10, 100, 1000)


def main(url: str, rounds: int) -> None:
    """Print the seconds of the rounds and the number of calls."""
    model = umbridge.HTTPModel(url, "log1pexp")
    calls = 0

    def round_of_calls() -> int:
        for n in SIZES:
            config, x, v = {"shape": [n]}, [[random.gauss(0, 3) for _ in range(n)]], [random.random() for _ in range(n)]
            model.get_input_sizes(config)
            assert len(model(x, config)[0]) == n
            assert len(model.gradient(0, 0, x, v, config)) == n
            assert len(model.apply_jacobian(0, 0, x, v, config)) == n
            assert len(model.apply_hessian(0, 0, 0, x, v, v, config)) == n
        return 5 * len(SIZES)

    round_of_calls()
    began = time.perf_counter()
    for _ in range(rounds):
        calls += round_of_calls()
    print(time.perf_counter() - began, calls)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
