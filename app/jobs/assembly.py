"""How the settings build the line of jobs."""

from dataclasses import replace

from app.execution.engine import Engine
from app.jobs.line import JobLine
from app.jobs.processes import JobProcesses
from app.jobs.records import Bounds
from app.jobs.store import JobStore
from app.settings import MB, Settings


def job_line(engine: Engine, settings: Settings) -> JobLine:
    """Return the line of jobs for these settings; raises ``CannotStart`` if its store cannot be used."""
    assert engine.setup is not None
    size = settings.jobs_mb * MB
    of_key = size // 2 if settings.keys_file else size
    store = JobStore(settings.jobs_path, Bounds(settings.key_jobs, of_key, size, settings.jobs_keep_s))
    # The line has looked at the key already, and no other process may answer for this one.
    alone = {
        **{"jobs": 0, "metrics": False, "keys_file": None, "tls_cert": None, "tls_key": None},
        **{"hosts": ("*",), "origins": (), "linearizations_mb": 0, "express": False, "warm_up": False},
        **{"crashes_path": None, "quarantine_s": 0.0, "workers": settings.workers},
        **{"deadline_s": settings.job_s, "checks_s": settings.job_s},
    }
    setup = replace(engine.setup, settings=engine.setup.settings.model_copy(update=alone))
    processes = JobProcesses(setup, engine.forks, settings.job_memory_mb)
    line = JobLine(store, processes, settings.jobs, settings.job_s, of_key)
    engine.lifecycle.at_stop.append(line.stop)
    return line
