"""Posted graphs behind HAProxy: each is known to one process, and clients notice nothing, even when that one dies."""

import threading

import numpy as np

import pullback
from tests.fleet.balancer import DOWN, HOST, UP
from tests.fleet.members import Fleet

CLIENTS, CALLS, GRAPHS = 3, 20, 6
X = np.array([0.25, -1.5, 3.0])


def composed(client: pullback.Client, number: int) -> pullback.client.ComposedOp:
    """Return one of several graphs: each has a different name, so different processes have them."""
    square, log1pexp = client.op("square"), client.op("log1pexp")
    return client.compose(lambda x: log1pexp(square(x) * float(number + 1)))


def expected(number: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 2 * (number + 1) * X / (1 + np.exp(-(number + 1) * X**2))


def holders(fleet: Fleet, name: str) -> list[str]:
    """Return which processes have a graph."""
    found = list[str]()
    for member in fleet.members.values():
        with pullback.Client(f"http://{member.address}") as client:
            try:
                client.op(name).contract()
                found.append(member.name)
            except pullback.NotFound:
                pass
    return found


def call_all(graphs: list[pullback.client.ComposedOp], failures: list[str]) -> None:
    for number in np.tile(range(len(graphs)), CALLS):
        try:
            gradient = graphs[number].vjp({"x": X}).gradients["x"]
        except pullback.PullbackError as error:
            failures.append(repr(error))
        else:
            if not np.allclose(gradient, expected(number)):
                failures.append(f"{gradient} in place of {expected(number)}")


def test_clients_use_graphs_while_processes_come_and_go(fleet, figures):
    failures = list[str]()
    with pullback.Client(f"http://{HOST}:{fleet.port}") as client:
        graphs = [composed(client, number) for number in range(GRAPHS)]
        call_all(graphs, failures)
        # A name selects a process, and that one has the graph now; others may have it from its first post.
        before = {graph.name: holders(fleet, graph.name) for graph in graphs}
        assert all(before.values())
        threads = [threading.Thread(target=call_all, args=(graphs, failures)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        killed = before[graphs[0].name][0]
        fleet.members[killed].service.process.kill()
        fleet.members[killed].service.wait()
        fleet.balancer.wait_for(DOWN, killed)
        call_all(graphs, failures)
        fleet.members[killed].start()
        fleet.balancer.wait_for(UP, killed)
        call_all(graphs, failures)
        for thread in threads:
            thread.join()
    assert failures == []
    calls = (CLIENTS + 3) * CALLS * GRAPHS
    figures.record("posted graphs while the process that has them is killed", calls=calls, failures=len(failures))
