"""Nothing reads the log: the service must go on, answer, and stop at a signal."""

from tests.hostile.findings import LOST
from tests.hostile.requests import Request
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads
from tests.hostile.wire import Lost
from tests.hostile.witness import ask, watch

THREADS, MOST = 4, 4000
# Lines of more than 300 bytes: a pipe of 64 KiB is full after some 200.
REQUEST = Request("GET", f"/no/such/path/{'x' * 300}")
PATIENCE_S = 10.0


def attack(stage: Stage) -> None:
    """Have the service write lines until the pipe is full many times over, then stop it."""

    def one(number: int) -> None:
        stage.findings.sent()
        try:
            stage.findings.answered(ask(stage.target.port, REQUEST, PATIENCE_S).status)
        except (Lost, OSError) as error:
            stage.findings.fail(LOST, f"request {number}, whose log line nobody reads: {type(error).__name__} {error}")

    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)
    stage.target.service.process.terminate()
    stage.target.wait_until_stopped(stage.findings)
