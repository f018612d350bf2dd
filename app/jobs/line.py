"""The line of jobs: it runs the jobs of the store as places become free, and wakes the requests that wait for them."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import orjson

from app.errors import CannotStart, OpFailed, Overloaded, TooManyRequests
from app.execution.engine import Engine
from app.jobs.processes import Charge, Died, JobProcesses
from app.kept.job_records import Answer, Bounds, Claim, JobRequest, Progress, State
from app.kept.job_store import JobStore
from app.settings import MB, Settings

log = logging.getLogger("pullback")

# How long the answer of a job is kept, in seconds.
KEEP_S = 86400.0


log = logging.getLogger("pullback")

Result = TypeVar("Result")

# How often the store is examined for what other processes have changed, while someone waits for that, and else.
TICK_S, IDLE_S = 0.2, 1.0
# How often jobs of processes that have ended, and answers whose time is over, are looked for.
SWEEP_S = 5.0
# After an error of the system, jobs begin again after this pause.
PAUSE_S = 2.0
# How long a process without a job is kept.
KEPT_S = 60.0
FIRST_ERROR = 400


class JobLine:
    """The jobs of a store that this process runs, at most ``count`` of all processes at a time.

    A job may take ``limit_s``, and its answer ``most`` bytes. ``ended`` is how many have ended in this process. It runs
    them inside the block of this context manager.
    """

    def __init__(self, store: JobStore, processes: JobProcesses, count: int, limit_s: float, most: int) -> None:
        """Start nothing yet."""
        self._store, self._processes, self._count = store, processes, count
        self._limit_s, self._most = limit_s, most
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._running = dict[str, tuple[Claim, asyncio.Task[None]]]()
        self._watched = dict[str, set[asyncio.Event]]()
        self._wake, self._is_stopping, self._pause_until = asyncio.Event(), False, 0.0
        self._task: asyncio.Task[None] | None = None
        self._counts, self.ended = dict[str, int](), 0

    @property
    def name(self) -> str:
        """The name of the store, with which the ids of its jobs begin."""
        return self._store.name

    def count(self, state: str) -> int:
        """Return how many jobs of the service there were lately in a state, or their ``bytes``."""
        return self._counts.get(state, 0)

    async def __aenter__(self) -> None:
        """Begin to run jobs."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Begin no other jobs, and let no one wait for one any more."""
        self._is_stopping = True
        for events in self._watched.values():
            for event in events:
                event.set()

    async def __aexit__(self, *error: object) -> None:
        """End the jobs that run, which wait again in the store, and leave it."""
        self.stop()
        tasks = [task for _, task in self._running.values()] + ([self._task] if self._task else [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._processes.close()
        with suppress(Overloaded):
            await self.call(JobStore.close)
        self._thread.shutdown()

    async def call(self, work: Callable[[JobStore], Result]) -> Result:
        """Return ``work`` of the store, in its thread; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._store)

    async def post(self, key: str, request: JobRequest, idempotency: str) -> State:
        """Return the state of a new job of a key, or of the same one; raises the errors of ``JobStore.add``."""
        state = await self.call(lambda store: store.add(key, request, idempotency))
        self._wake.set()
        return state

    async def cancel(self, name: str, key: str) -> None:
        """Cancel a job of a key, and end its process; raises the errors of ``JobStore.cancel``."""
        await self.call(lambda store: store.cancel(name, key))
        self._wake.set()

    async def states(self, names: Sequence[str], key: str, wait_s: float = 0.0) -> list[State]:
        """Return the states of jobs of a key, once one has ended, at the latest after ``wait_s``.

        Raises the errors of ``JobStore.states``.
        """
        ended = asyncio.Event()
        for name in names:
            self._watched.setdefault(name, set()).add(ended)
        try:
            states = await self.call(lambda store: store.states(names, key))
            if not wait_s or self._is_stopping or any(state.has_ended for state in states):
                return states
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await ended.wait()
        finally:
            for name in names:
                if not (events := self._watched.get(name, set())) - {ended}:
                    self._watched.pop(name, None)
                events.discard(ended)
        return await self.call(lambda store: store.states(names, key))

    async def _run(self) -> None:
        version, swept, had_job = -1, -SWEEP_S, time.monotonic()
        while True:
            is_woken, now = self._wake.is_set(), time.monotonic()
            self._wake.clear()
            try:
                if now - swept >= SWEEP_S:
                    is_woken, swept = True, now
                    await self.call(JobStore.sweep)
                    self._counts = await self.call(JobStore.counts)
                if (latest := await self.call(JobStore.version)) != version or is_woken:
                    version = latest
                    await self._begin()
                    await self._end_others()
                    await self._tell()
            except Overloaded:
                pass  # the store has logged it
            except Exception:
                log.exception("the line of jobs failed, and goes on")
            had_job = now if self._running else had_job
            if now - had_job > KEPT_S:
                self._processes.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S if self._watched or self._running else IDLE_S):
                    await self._wake.wait()

    async def _begin(self) -> None:
        """Begin the jobs for which there is a place, or let one give way for them."""
        while not self._is_stopping and time.monotonic() >= self._pause_until:
            claim = await self.call(lambda store: store.claim(self._count))
            if claim is None:
                return
            self._running[claim.id] = claim, asyncio.create_task(self._work(claim))

    async def _end_others(self) -> None:
        """End the processes of jobs that were cancelled, or gave way."""
        claims = [claim for claim, _ in self._running.values()]
        for claim, still in zip(claims, await self.call(lambda store: store.running(claims)), strict=True):
            # Once: it then waits for the end of the process.
            if not still and claim.id in self._running and not (task := self._running[claim.id][1]).cancelling():
                task.cancel()

    async def _tell(self) -> None:
        """Wake those that wait for jobs that have ended."""
        for name in await self.call(lambda store: store.ended([*self._watched])) if self._watched else ():
            for event in self._watched.get(name, ()):
                event.set()

    async def _work(self, claim: Claim) -> None:
        """Run a job, and note in the store how it has ended."""
        try:
            await self._note(claim, await self._outcome(claim))
            self.ended += 1
        finally:
            with suppress(Overloaded):
                await self.call(lambda store: store.leave(claim))
            self._running.pop(claim.id, None)
            self._wake.set()

    async def _outcome(self, claim: Claim) -> Callable[[JobStore], None]:
        """Run a job; return what notes its end in the store."""
        try:
            answer = await self._processes.run(claim, self._limit_s, self._most, partial(self._follow, claim))
            error = _error_of(answer)
            try:
                await self.call(lambda store: store.finish(claim, answer, error))
            except (TooManyRequests, Overloaded) as failure:
                why = f"its answer cannot be kept: {failure.detail}"
                return lambda store: store.fail(claim, why)
            return lambda store: None
        except Died as death:
            why = str(death)
            log.warning("job %s: %s", claim.id, why)
            return lambda store: store.give_back(claim, why)
        except OpFailed as failure:
            why = failure.detail
            return lambda store: store.fail(claim, why)
        except Overloaded as failure:
            log.warning("job %s waits again: %s", claim.id, failure.detail)
            self._pause_until = time.monotonic() + PAUSE_S
            return lambda store: store.put_back(claim)
        except Exception:
            log.exception("job %s failed", claim.id)
            return lambda store: store.fail(claim, "the service failed; its log has the details")

    async def _follow(self, claim: Claim, progress: Progress) -> None:
        """Keep how far a job has come."""
        with suppress(Overloaded):
            await self.call(lambda store: store.note(claim, progress))

    async def _note(self, claim: Claim, outcome: Callable[[JobStore], None]) -> None:
        """Note the end of a job in the store, once that works."""
        while True:
            try:
                return await self.call(outcome)
            except Overloaded:
                await asyncio.sleep(PAUSE_S)


def _error_of(answer: Answer) -> str:
    """Return why a job has failed whose answer is an error, "" for any other."""
    if answer.status < FIRST_ERROR:
        return ""
    with suppress(orjson.JSONDecodeError, TypeError, KeyError):
        document: Any = orjson.loads(answer.body)
        return f"{answer.status}: {document['detail']}"
    return f"the answer has status {answer.status}"


def job_line(engine: Engine, settings: Settings, charge: Charge) -> JobLine | None:
    """Return the line of jobs for these settings; ``None`` if they turn jobs off, or if no temporary folder exists.

    ``charge`` counts what each job has computed. Raises ``CannotStart`` if the folder of the settings cannot be used.
    """
    if not settings.jobs or engine.setup is None or (data := engine.setup.settings.data) is None:
        return None
    size = settings.jobs_mb * MB
    of_key = size // 2 if settings.keys_file else size
    try:
        store = JobStore(data / "jobs", Bounds(settings.key_jobs, of_key, size, KEEP_S))
    except CannotStart as error:
        if settings.data is not None:
            raise
        log.warning("requests are answered at once, not as jobs: %s", error)
        return None
    # The line has looked at the key already, and no other process may answer for this one.
    alone = {
        **{"jobs": 0, "metrics": False, "keys_file": None, "tls_cert": None, "tls_key": None},
        **{"hosts": ("*",), "origins": (), "linearizations_mb": 0, "express": False, "warm_up": False},
        **{"quarantine_s": 0.0, "workers": settings.workers},
        **{"deadline_s": settings.job_s, "checks_s": settings.job_s},
    }
    setup = replace(engine.setup, settings=engine.setup.settings.model_copy(update=alone))
    processes = JobProcesses(setup, engine.forks, settings.process_memory_mb, charge)
    line = JobLine(store, processes, settings.jobs, settings.job_s, of_key)
    engine.lifecycle.at_stop.append(line.stop)
    return line
