"""The pool of processes of checks, and what it survives: processes that crash, hang, grow or cannot start."""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from app.errors import Overloaded
from app.processes import check_process
from app.processes.pool import CheckPool
from tests.patience import PATIENCE_S
from tests.processes import obedient
from tests.processes.obedient import ObedientServer, is_running
from tests.processes.pools import check, in_a_pool, sentence, until, verdicts

pytestmark = pytest.mark.slow


def test_each_check_has_a_process_of_its_own() -> None:
    async def test(pool: CheckPool) -> None:
        first, second = [sentence(await check(pool, "who")) for _ in range(2)]
        assert first != second
        assert not is_running(int(first))
        assert not is_running(int(second))

    in_a_pool(test)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")])
def test_a_place_is_not_lost_where_no_process_can_start(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(ObedientServer):
        def fork(self, kind: bytes, connection: int, memory: int, pipe: int) -> None:
            raise error

    async def test(pool: CheckPool) -> None:
        for _ in range(3):
            with pytest.raises(Overloaded, match=f"no process of checks can start: .*{error.args[-1]}"):
                await check(pool, "nothing")
        monkeypatch.setattr(Refusing, "fork", ObedientServer.fork)
        await check(pool, "nothing")

    in_a_pool(test, server=Refusing)


def test_a_process_closes_no_descriptor_of_others() -> None:
    async def test(pool: CheckPool) -> None:
        async with pool.process(time.monotonic() + PATIENCE_S) as process:
            assert process is not None
        process.close()
        await until(lambda: bool(process.status))
        free = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
        process.close()
        for descriptor in free:
            os.close(descriptor)

    in_a_pool(test)


def test_a_process_that_does_not_load_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[int]()

    class Forgetful(ObedientServer):
        def fork(self, kind: bytes, connection: int, memory: int, pipe: int) -> None:
            if held:
                super().fork(kind, connection, memory, pipe)
            else:
                held.append(os.dup(pipe))  # and never a word
                monkeypatch.setattr(check_process, "LOAD_S", PATIENCE_S)

    async def test(pool: CheckPool) -> None:
        with pytest.raises(Overloaded, match="no process of checks has started in time"):
            await check(pool, "nothing")
        os.close(held[0])
        await check(pool, "nothing")

    monkeypatch.setattr(check_process, "LOAD_S", 0.2)
    in_a_pool(test, server=Forgetful)


def test_a_fork_that_fails_harms_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        if failures.read_bytes():
            return original()
        failures.write_bytes(b"1")
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def test(pool: CheckPool) -> None:
        with pytest.raises(Overloaded, match="no process of checks can start: the fork server cannot fork"):
            await check(pool, "nothing")
        server = pool.forks._server
        await check(pool, "nothing")
        assert pool.forks._server is server

    with tempfile.NamedTemporaryFile() as file:
        failures, original = Path(file.name), os.fork
        monkeypatch.setattr(obedient, "fork", fork)
        in_a_pool(test)


@pytest.mark.parametrize("action", ["garble", "boast", "close", "stop"])
def test_an_op_that_breaks_its_process_twice_fails(action: str) -> None:
    async def test(pool: CheckPool) -> None:
        report = await check(pool, action)
        assert verdicts(report)[0] == "fail"
        assert f"op {action} broke the process of the check, which ended with " in sentence(report)
        await check(pool, "nothing")

    in_a_pool(test)


def test_a_crash_is_known_although_a_process_of_the_op_lives(tmp_path: Path) -> None:
    async def test(pool: CheckPool) -> None:
        assert "SIGSEGV" in sentence(await check(pool, f"breed-and-crash {tmp_path / 'pid'}"))
        pid = int((tmp_path / "pid").read_text(encoding="ascii"))
        await until(lambda: not is_running(pid))

    in_a_pool(test)


def test_the_processes_of_an_op_end_with_the_fork_server(tmp_path: Path) -> None:
    async def test(pool: CheckPool) -> None:
        await check(pool, f"breed-and-end-server {tmp_path / 'pid'}")
        pid = int((tmp_path / "pid").read_text(encoding="ascii"))
        await until(lambda: not is_running(pid))

    in_a_pool(test)


def test_memory_is_measured_while_messages_come() -> None:
    async def test(pool: CheckPool) -> None:
        assert "more than 1024 MiB" in sentence(await check(pool, "grow 1500"))

    in_a_pool(test, memory_mb=1024)


def test_the_death_of_the_fork_server_is_no_fault_of_an_op(tmp_path: Path) -> None:
    async def test(pool: CheckPool) -> None:
        running = asyncio.create_task(check(pool, f"hang-once {tmp_path / 'seen'}"))
        await until((tmp_path / "seen").exists)
        assert pool.forks._server is not None
        os.kill(pool.forks._server._process.pid, signal.SIGKILL)
        assert verdicts(await running) == []

    in_a_pool(test)


def stop_server(pool: CheckPool) -> int:
    """Start a fork server that forks nothing until it goes on; return its id."""
    pool.forks._server = ObedientServer.spawned()
    os.kill(pool.forks._server._process.pid, signal.SIGSTOP)
    return pool.forks._server._process.pid


def test_a_stop_ends_a_check_at_once() -> None:
    async def test(pool: CheckPool) -> None:
        running = asyncio.create_task(check(pool, "hang"))
        await until(lambda: any(process.has_begun for process in pool._running))
        pool.stop()
        with pytest.raises(Overloaded, match="shutting down"):
            await running

    in_a_pool(test)


def test_a_stop_ends_a_check_whose_process_starts() -> None:
    async def test(pool: CheckPool) -> None:
        stop_server(pool)
        running = asyncio.create_task(check(pool, "nothing"))
        await until(lambda: bool(pool._running))
        pool.stop()
        with pytest.raises(Overloaded, match="shutting down"):
            await running

    in_a_pool(test)


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_place_of_who_leaves_is_free_when_the_process_has_ended(has_begun: bool) -> None:
    async def test(pool: CheckPool) -> None:
        running = asyncio.create_task(check(pool, "hang"))
        await until(lambda: any(process.has_begun or not has_begun for process in pool._running))
        [process] = pool._running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert process.status

    in_a_pool(test)


def test_a_killed_service_leaves_no_process(tmp_path: Path) -> None:
    async def test(pool: CheckPool) -> None:
        running = asyncio.create_task(check(pool, "hang"))
        await until(lambda: any(process.has_begun for process in pool._running))
        [process] = pool._running
        (tmp_path / "pid").write_text(str(process._pid), encoding="ascii")
        (tmp_path / "pid").rename(tmp_path / "known")
        await running

    if not (service := os.fork()):
        try:
            in_a_pool(test)
        finally:
            os._exit(1)
    asyncio.run(until((tmp_path / "known").exists))
    os.kill(service, signal.SIGKILL)
    os.waitpid(service, 0)
    pid = int((tmp_path / "known").read_text(encoding="ascii"))
    asyncio.run(until(lambda: not is_running(pid)))
