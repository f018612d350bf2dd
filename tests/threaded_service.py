"""The service on a thread of the test process: the application, the server and the sockets of ``python -m app``.

It costs no import of TensorFlow. A test takes it where only settings differ. A test of signals, exit codes, the log,
workers, the watchdog, the warm-up or memory takes a process.
"""

import gc
import tempfile
import threading
from concurrent.futures import Future
from unittest.mock import patch

import httpx
from uvicorn import Config

from app.__main__ import server_config
from app.http.listener import listen, url_of
from app.http.server import OneServer
from app.main import create_app
from app.settings import Settings
from app.telemetry.line_writer import STDERR
from tests.conftest import DEFAULTS, client_of, port_of
from tests.patience import PATIENCE_S


class ThreadedService:
    """A service with settings, each without its prefix, as the environment has them: ``MAX_JSON_MB="1"``."""

    def __init__(self, **settings: str) -> None:
        """Start the service and wait until it accepts requests; raise what keeps it from starting."""
        made = settings_of(**settings)
        others = set(threading.enumerate())
        self._ready, self._ended = threading.Event(), Future[None]()
        self._listener = listen(made.host, made.port)
        self.url = url_of(self._listener)
        self._server = OneServer(config_of(made), self._ready.set)
        # A line may follow its answer, between two tests, when pytest captures nothing.
        self._lines = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._log = patch.object(STDERR, "descriptor", self._lines.fileno())
        self._log.start()
        self._thread = threading.Thread(target=self._serve, name=f"service on port {self.port}")
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the service did not start"
        # Those that write lines are the process's.
        self.threads = [thread for thread in threading.enumerate() if thread not in others and thread.name != "log"]
        if self._ended.done():
            self.close()
        # The service freezes the objects that exist at its start. The collector must still see those of the tests.
        gc.unfreeze()

    @property
    def port(self) -> int:
        return port_of(self.url)

    def client(self) -> httpx.Client:
        return client_of(self.url)

    def close(self) -> None:
        """Stop the service and wait for its threads; raise what ended it."""
        self._server.should_exit = True
        for thread in self.threads:
            thread.join(PATIENCE_S)
        self._listener.close()
        STDERR.flush()
        self._log.stop()
        self._lines.close()
        assert not any(thread.is_alive() for thread in self.threads), self.threads
        self._ended.result()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - close() raises it
            self._ended.set_exception(error)
        finally:
            self._ready.set()


def settings_of(**given: str) -> Settings:
    """Return these settings, read as from the environment, and the defaults of the tests; no others."""
    defaults = {name: field.get_default() for name, field in Settings.model_fields.items()}
    return Settings(**defaults | {name.lower(): value for name, value in (DEFAULTS | given).items()})


def config_of(settings: Settings) -> Config:
    """Return the launcher's configuration of the server, with an application of these settings.

    The log of the process belongs to pytest, so uvicorn does not configure it.
    """
    with patch.object(Config, "configure_logging"):
        config = server_config(settings)
    config.app = lambda: create_app(settings)
    return config
