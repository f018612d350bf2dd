"""The calls of Triton's client: health, metadata, values and gradients, in binary and in JSON."""

import sys
import time

import numpy as np
import tritonclient.http as client

SIZES = (10, 1000, 100_000)
LARGEST_JSON = 10


def main(url: str, rounds: int) -> None:
    """Print the seconds of the rounds and the number of calls."""
    calls, rng = 0, np.random.default_rng()
    with client.InferenceServerClient(url.removeprefix("http://")) as server:

        def infer(model: str, n: int, *, binary: bool, **tensors: np.ndarray) -> None:
            inputs = [
                client.InferInput(name, array.shape, "FP32").set_data_from_numpy(array, binary_data=binary)
                for name, array in tensors.items()
            ]
            name = "y" if model == "log1pexp" else "dx"
            outputs = [client.InferRequestedOutput(name, binary_data=binary)]
            assert server.infer(model, inputs, outputs=outputs).as_numpy(name).shape == (n,)

        def round_of_calls() -> int:
            count = 2
            assert server.is_server_live()
            assert server.get_model_metadata("log1pexp")["name"] == "log1pexp"
            for n in SIZES:
                x, dy = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
                for binary in (True, False) if n <= LARGEST_JSON else (True,):
                    infer("log1pexp", n, binary=binary, x=x)
                    infer("log1pexp.vjp", n, binary=binary, x=x, dy=dy)
                    count += 2
            return count

        round_of_calls()
        began = time.perf_counter()
        for _ in range(rounds):
            calls += round_of_calls()
        print(time.perf_counter() - began, calls)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
