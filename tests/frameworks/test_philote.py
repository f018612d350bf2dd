"""``pullback philote``: the stock client of Philote in OpenMDAO, and messages that no stock client sends."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import openmdao.api as om
import philote_mdo.general as pm
import pytest
from google.protobuf.empty_pb2 import Empty
from openmdao.utils.assert_utils import assert_check_partials
from philote_mdo.generated import data_pb2 as data
from philote_mdo.openmdao import RemoteExplicitComponent
from philote_mdo.utils.validation import PhiloteServerError

from tests.page_examples import run_examples
from tests.patience import PATIENCE_S, PAUSE_S

PAGE = Path(__file__).parents[2] / "docs" / "solvers.md"
X = np.array([-0.5, 0.25, 2.0])
LIMIT_S = 60


@contextmanager
def bridge(url: str, *arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Serve an op by the command; yield the address."""
    command = [sys.executable, "-P", "-m", "pullback", "philote", *arguments, "--url", url]
    command += [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            found = re.fullmatch(r"\S+ for Philote on (127\.0\.0\.1:\d+)\n", process.stdout.readline())
            assert found, process.stderr.read()
            yield found[1], process
        finally:
            process.terminate()


@pytest.fixture
def serve(url: str) -> Iterator[Callable[..., grpc.Channel]]:
    """Return a function that serves an op, and returns a channel to it."""
    with ExitStack() as stack:

        def channel(*arguments: str) -> grpc.Channel:
            address, _ = stack.enter_context(bridge(url, *arguments))
            return stack.enter_context(grpc.insecure_channel(address))

        yield channel


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[pm.ExplicitClient]:
    """A stock client of safe_norm, of a row of three numbers."""
    url = request.config.getoption("url")
    with bridge(url, "safe_norm", "--shape", "x=3") as (address, _), grpc.insecure_channel(address) as channel:
        yield pm.ExplicitClient(channel)


@pytest.mark.parametrize(
    ("arguments", "inputs"),
    [
        (["log1pexp", "--shape", "x=3"], {"x": X}),
        (["scale_gradient", "scale=1", "--shape", "x=3"], {"x": X}),
        (["safe_norm", "--shape", "x=2,3"], {"x": np.stack([X, X + 1])}),
        (["matvec", "--shape", "a=2,3", "--shape", "x=3"], {"a": np.stack([X, X - 2]), "x": X}),
    ],
    ids=["elementwise", "attribute", "rows", "two inputs"],
)
def test_the_stock_component_passes_openmdaos_check(serve, arguments: list[str], inputs: dict[str, Any]) -> None:
    problem = om.Problem(reports=False)
    problem.model.add_subsystem("op", RemoteExplicitComponent(channel=serve(*arguments)), promotes=["*"])
    problem.setup()
    for name, value in inputs.items():
        problem.set_val(name, value)
    problem.run_model()
    found = problem.check_partials(out_stream=None)
    assert len(found["op"]) == len(inputs)
    assert_check_partials(found, atol=1e-5, rtol=1e-5)


def test_the_program_on_the_page_optimises(url: str) -> None:
    with bridge(url, "safe_norm", "--shape", "x=2", "--listen", "127.0.0.1:50051"):
        run_examples(PAGE, "<!-- philote -->", url)


def test_messages_of_any_length_carry_the_same_numbers(client: pm.ExplicitClient) -> None:
    client._stream_options = data.StreamOptions(num_double=2)
    client.send_stream_options()
    client.run_setup()
    client._var_meta = []
    client.get_variable_definitions()
    client._partials_meta = []
    client.get_partials_definitions()
    outputs, partials = client.run_compute({"x": X}), client.run_compute_partials({"x": X})
    np.testing.assert_allclose(outputs["y"], np.linalg.norm(X))
    np.testing.assert_allclose(partials["y", "x"].ravel(), X / np.linalg.norm(X))
    assert np.isnan(client.run_compute({"x": np.array([np.nan, 0, 1])})["y"]).all()


def test_units_are_those_of_the_command(serve) -> None:
    channel = serve("safe_norm", "--shape", "x=3", "--unit", "x=m", "--unit", "y=m")
    found = pm.ExplicitClient(channel)._disc_stub.GetVariableDefinitions(Empty())
    assert [(each.name, list(each.shape), each.units) for each in found] == [("x", [3], "m"), ("y", [1], "m")]


def part(name: str = "x", start: int = 0, end: int = 2, numbers: Any = (1, 2, 3), kind: int = data.kInput) -> Any:
    array = data.Array(name=name, start=start, end=end, type=kind, data=numbers)
    return data.VariableMessage(continuous=array)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "x: expected 3 numbers, got 0"),
        ([part(end=1, numbers=[1, 2])], "x: expected 3 numbers, got 2"),
        ([part(), part(start=2, numbers=[3])], "x: expected each number once, got one of 2 to 2 again"),
        ([part("z")], "expected the inputs x, got 'z'"),
        ([part("z" * 100_000)], "expected the inputs x, got 'zzz"),
        ([part(kind=data.kOutput)], "expected arrays of inputs"),
        ([data.VariableMessage()], "expected arrays of inputs"),
        ([data.VariableMessage(discrete=data.DiscreteVariable(name="x"))], "expected arrays of inputs"),
        ([part(end=1)], "x: expected numbers of the 3 from 0 to 2, got 3 numbers from 0 to 1"),
        ([part(start=-3, end=-1)], "got 3 numbers from -3 to -1"),
        ([part(start=1, end=3)], "got 3 numbers from 1 to 3"),
        ([part(end=2**62)], "got 3 numbers from 0 to 4611686018427387904"),
        ([part(start=2, end=1, numbers=[])], "got 0 numbers from 2 to 1"),
    ],
)
@pytest.mark.parametrize("call", ["ComputeFunction", "ComputeGradient"])
def test_wrong_messages_are_refused(client: pm.ExplicitClient, messages: list[Any], text: str, call: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        list(getattr(client._expl_stub, call)(iter(messages), timeout=LIMIT_S))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert text in refused.value.details()
    assert len(refused.value.details()) < 1100
    np.testing.assert_allclose(client.run_compute({"x": X})["y"], np.linalg.norm(X))


def test_clients_cannot_change_what_others_get(client: pm.ExplicitClient) -> None:
    client.send_options({})
    for change, text in (
        (lambda: client.send_options({"scale": 2.0}), "expected no options: set attributes where the server starts"),
        (lambda: client.send_variable_shapes([client.set_variable_shape("x", (4,))]), "x: [3], y: [1], got x: [4]"),
        (lambda: client._disc_stub.SetStreamOptions(data.StreamOptions(num_double=0)), "expected at least 1, got 0"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            change()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert text in refused.value.details()
    client._disc_stub.SetVariableShapes(iter([client.set_variable_shape("x", (3,))]))
    assert list(client._disc_stub.GetAvailableOptions(Empty()).options) == []


def test_calls_that_stall_end_and_leave_room_for_others(serve) -> None:
    """More streams that send only a part than may be in progress: the others are refused, and all end."""
    client, go = pm.ExplicitClient(serve("safe_norm", "--shape", "x=3", "--timeout", "1")), threading.Event()

    def stalled() -> Iterator[Any]:
        yield part(end=0, numbers=[1])
        go.wait(LIMIT_S)

    calls, codes = [client._expl_stub.ComputeFunction(stalled(), timeout=LIMIT_S) for _ in range(20)], set()
    calls[0].cancel()
    for call in calls[1:]:
        with pytest.raises(grpc.RpcError) as ended:
            list(call)
        codes.add(ended.value.code())
    go.set()
    assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert_all_are_free(client)


def has_answered(call: Any) -> bool:
    try:
        return len(list(call)) == 1
    except grpc.RpcError:
        return False


def assert_all_are_free(client: pm.ExplicitClient) -> None:
    """Wait until 16 calls run at a time: a call has ended for its client before it leaves its place."""
    for _ in range(round(PATIENCE_S / PAUSE_S)):
        calls = [client._expl_stub.ComputeFunction(iter([part()]), timeout=LIMIT_S) for _ in range(16)]
        if sum(map(has_answered, calls)) == len(calls):
            return
        time.sleep(PAUSE_S)
    raise AssertionError("places of calls that have ended are still taken")


def test_errors_of_the_service_reach_the_client(serve) -> None:
    client = pm.ExplicitClient(serve("self_adjoint_eig", "--shape", "a=2,2"))
    client.run_setup()
    client.get_variable_definitions()
    with pytest.raises(PhiloteServerError, match="the decomposition needs a finite matrix, got nan at "):
        client.run_compute({"a": np.full((2, 2), np.nan)})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["square", "--shape", "x=3000"],
            "expected at most 4194304 numbers in the Jacobian, which Philote sends dense",
        ),
        (["square", "--shape", "x=0"], "x: expected a shape without 0, got [0]"),
        (["square", "--shape", "x=a"], "--shape x: expected sizes such as 2,3, got 'a'"),
        (["square", "--shape", "x=2", "--unit", "z=m"], "units: expected inputs and outputs (x, y), got z"),
        (["square", "x=1", "--shape", "x=2"], "x: expected only attributes, since clients send the inputs"),
        (
            ["softmax_cross_entropy", "--shape", "logits=2,3", "--shape", "labels=2"],
            "expected an op of floats, got lab",
        ),
        (["square", "--shape", "x=2", "--listen", "0.0.0.0:0"], "--listen: expected HOST:PORT of this machine"),
        (["square", "--shape", "x=2", "--listen", "127.0.0.1:99999"], "--listen: expected HOST:PORT of this machine"),
        (["squar", "--shape", "x=2"], "unknown op 'squar'"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_start(url: str, arguments: list[str], text: str) -> None:
    command = [sys.executable, "-P", "-m", "pullback", "philote", *arguments, "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_a_port_has_one_server(url: str, number: int, status: int) -> None:
    with bridge(url, "square", "--shape", "x=2") as (address, process):
        command = [sys.executable, "-P", "-m", "pullback", "philote", "square", "--shape", "x=2", "--url", url]
        other = subprocess.run(
            [*command, "--listen", address], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert other.returncode == 2
        assert "expected an address and port that are free" in other.stderr
        process.send_signal(number)
        assert process.wait(LIMIT_S) == status
