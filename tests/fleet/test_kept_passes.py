"""Linearizations behind HAProxy: requests with an id go to the process that made it."""

import httpx
import numpy as np

import pullback
from tests.fleet.balancer import DOWN, HOST, UP
from tests.fleet.members import Fleet

POINTS = 9


def holder(fleet: Fleet, name: str | None) -> str:
    """Return which process has a linearization."""
    urls = {member.name: f"http://{member.address}/v1/linearizations/{name}" for member in fleet.members.values()}
    [found] = [name for name, url in urls.items() if httpx.get(url).status_code == 200]
    return found


def test_products_go_to_the_process_that_has_the_forward_pass(fleet: Fleet) -> None:
    with pullback.Client(f"http://{HOST}:{fleet.port}") as client:
        op, square = client.op("patient"), client.op("square")
        # HAProxy sends the requests of a graph to the process that its name selects.
        graph = client.compose(lambda x: square(op(x)))
        for one in (graph, op):
            made = [one.linearize(np.array([float(i), 1.0])) for i in range(POINTS)]
            opened = [each.__enter__() for each in made]
            holders = [holder(fleet, at.id) for at in opened]
            names = [at.id for at in opened]
            assert one is graph or len(set(holders)) > 1, "expected several processes"
            for at in opened * 2:
                at.vjp(), at.jvp([1.0, 1.0])
            # None was answered 410.
            assert [at.id for at in opened] == names
            for at in made:
                at.__exit__(None, None, None)


def test_a_process_that_dies_is_replaced_by_the_inputs(fleet: Fleet) -> None:
    x = np.array([0.5, 2.0])
    with pullback.Client(f"http://{HOST}:{fleet.port}") as client, client.op("patient").linearize(x) as at:
        lost = at.id
        dead = fleet.members[holder(fleet, lost)]
        dead.service.process.kill()
        dead.service.wait()
        np.testing.assert_allclose(at.vjp().gradients["x"], 3 * x**2 + 0.5)
        assert at.id != lost
        fleet.balancer.wait_for(DOWN, dead.name)
        dead.start()
        fleet.balancer.wait_for(UP, dead.name)
        np.testing.assert_allclose(at.vjp().gradients["x"], 3 * x**2 + 0.5)
