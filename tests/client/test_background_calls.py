"""Jobs of the client: calls in the background, by both clients and on the command line."""

import asyncio
import base64
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import pullback
from pullback.cli.commands import app
from tests.client.fake_servers import json_response
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

X = np.array([1.0, 2.0])


def test_a_call_in_the_background_has_the_same_result(service):
    with pullback.Client(service.url) as client:
        square = client.op("square")
        job = square.vjp({"x": X}, background="a run of mine")
        again = square.vjp(X, background="a run of mine")
        assert isinstance(job, pullback.Job)
        assert job.id == again.id
        assert job.wait(PATIENCE_S).state == "done"
        np.testing.assert_array_equal(job.result().gradients["x"], square.vjp(X).gradients["x"])
        # Its answer is in another format.
        hessian = square.hessian(X, background=True)
        np.testing.assert_array_equal(hessian.result().hessian["x"]["x"], square.hessian(X).hessian["x"]["x"])
        report = square.check(checks=["contract"], background=True).result(PATIENCE_S)
        assert report.verdict == "pass"
        assert {job.id, hessian.id} <= {state.id for state in client.jobs()}
        assert client.job(job.id).result()["gradients"].keys() == {"x"}
        with pytest.raises(pullback.Unprocessable, match="Idempotency-Key"):
            square.vjp([3.0], background="a run of mine")
        with pytest.raises(pullback.NotFound):
            client.op("no_such").vjp({"x": X}, background=True)
        wrong = square.forward({"x": ["a"]}, background=True)
        assert wrong.wait(PATIENCE_S).state == "failed"
        with pytest.raises(pullback.Unprocessable):
            wrong.result()
        job.cancel()
        with pytest.raises(pullback.Gone):
            job.result()


def test_jobs_are_awaited(service):
    async def main() -> None:
        async with pullback.AsyncClient(service.url) as client:
            started = [await client.op("square").vjp([float(i)], background=True) for i in range(3)]
            results = await asyncio.gather(*(job.result(PATIENCE_S) for job in started))
            assert [result.gradients["x"].tolist() for result in results] == [[0.0], [2.0], [4.0]]
            assert (await client.jobs())[0].id == started[-1].id
            assert (await client.job(started[0].id).wait()).state == "done"
            await started[0].cancel()

    asyncio.run(main())


def test_the_command_line_lists_waits_and_cancels(service):
    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["--url", service.url, "jobs", *arguments])
        assert result.exit_code == code, result.output
        return result.stdout

    with pullback.Client(service.url) as client:
        one = client.op("square").vjp(X, background=True)
        two = client.op("square").forward({"x": X}, dtype="none", background=True)
        assert run("wait", one.id) == f"{one.id}  done\n"
        assert re.fullmatch(rf"{one.id}  done\n{two.id}  failed     422: .*\n", run("wait", one.id, two.id, code=1))
        assert run("list").startswith(two.id)
        run("cancel", one.id, two.id)
        assert one.id not in run("list")


def test_a_service_without_jobs_answers_at_once(fake_server):
    gradient = {"dtype": "float64", "shape": [1], "base64": base64.b64encode(np.array([2.0]).tobytes()).decode()}
    server = fake_server(json_response({"gradients": {"x": gradient}}))
    with pullback.Client(server.url) as client:
        job = client.op("square").vjp({"x": X[:1]}, background=True)
        assert (job.id, job.wait().state) == ("", "done")
        assert job.result().gradients["x"].tolist() == [2.0]
        job.cancel()


def test_a_job_that_still_runs(fake_server):
    state = {"id": "a", "state": "running", "progress": {"done": 3, "total": 9}}
    with pullback.Client(fake_server(json_response(state)).url) as client:
        for wait in (client.job("a").wait, client.job("a").result):
            with pytest.raises(pullback.TimedOut, match="running after 0 s"):
                wait(0)
    server = fake_server(json_response({"jobs": [state]}))
    with pullback.Client(server.url) as client:
        assert client.jobs()[0].progress == (3, 9)
    listed = CliRunner().invoke(app, ["--url", server.url, "jobs", "list"]).stdout
    assert listed == "a  running    3 of 9 done\n"
