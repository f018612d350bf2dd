"""How the settings build the line of jobs."""

import logging
from dataclasses import replace

from app.errors import CannotStart
from app.execution.engine import Engine
from app.jobs.line import JobLine
from app.jobs.processes import Charge, JobProcesses
from app.kept.job_records import Bounds
from app.kept.job_store import JobStore
from app.settings import MB, Settings

log = logging.getLogger("pullback")

# How long the answer of a job is kept, in seconds.
KEEP_S = 86400.0


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
