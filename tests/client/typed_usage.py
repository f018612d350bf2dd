"""What users write, for pyright and mypy in strict mode; nothing runs it."""

import asyncio

import numpy as np
from numpy.typing import NDArray

import pullback


def fit(margins: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    with pullback.Client("http://127.0.0.1:8000", headers={"X-Team": "a"}, timeout=None) as client:
        loss = client.op("log1pexp")
        found = loss.vjp({"x": margins}, cotangents={"y": np.ones(3)}, outputs=True, deadline=0.5)
        weights += 0.3 * found.gradients["x"] @ weights / 8
        bare = loss.vjp(margins, cotangents=[1, 2, 3])
        orders = loss.gradients({"x": [1.0, 2.0]}, order=2, attrs={"scale": 2}, dtype="float64")
        block = loss.jacobian(margins).jacobian["y"]["x"]
        second = loss.hessian(margins, diagonal=True).diagonal["x"] + orders.gradients[1]["x"]
        report = loss.check(checks=["derivative"], seed=3)
        names = [op.name for op in client.ops() if op.claim is not None and op.claim.linear]
        print(bare.gradients["x"].shape, block.sum(), second.dtype, report.verdict, report.checks[0].sentence, names)
        return float(found.outputs["y"].mean())


async def many(points: list[float]) -> list[float]:
    async with pullback.AsyncClient(concurrency=8) as client:
        op = client.op("square")
        answers = await asyncio.gather(*(op.vjp({"x": point}) for point in points))
        async for event in client.checks(["square"]):
            print(event)
        return [float(answer.gradients["x"]) for answer in answers]
