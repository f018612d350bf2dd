"""The settings: read once from ``PULLBACK_*`` environment variables, and frozen."""

import ipaddress
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

KB, MB = 1 << 10, 1 << 20

PROTOCOLS = {
    "umbridge": "app.routes.umbridge.paths",
    "tesseract": "app.routes.tesseract.paths",
    "openinference": "app.routes.openinference.paths",
    "mcp": "app.routes.mcp.paths",
}
"""The modules of the other protocols: ``routes`` in each returns its router."""
ANY = "*"
OTEL, OTLP = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), "http/protobuf"
"""The packages of OpenTelemetry that traces need, and the only protocol of OTLP that they implement."""
_HOST = re.compile(r"\*|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")


class Settings(BaseSettings):
    """The settings of an operator. Sizes are in MiB, times in seconds, elements are those of a tensor."""

    model_config = SettingsConfigDict(env_prefix="PULLBACK_", frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address to listen on, or unix: and the path of a socket.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0: any free port.")
    tls_cert: Path | None = Field(default=None, description="File of the certificate chain for TLS, in PEM.")
    tls_key: Path | None = Field(default=None, description="File of the certificate's key, in PEM.")
    hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Hosts that requests may name, separated by ','; *: any; empty: by PULLBACK_HOST."
    )
    origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Origins of other sites whose pages may use the service, separated by ','; *: any."
    )
    keys_file: Path | None = Field(default=None, description="File of keys; every request then needs one of them.")
    key_inflight: int = Field(default=256, ge=1, description="Limit of requests in progress with the same key.")
    workers: int = Field(default=1, ge=1, le=64, description="Number of server processes.")
    ops_path: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(), description=f"Folders with plug-in ops, separated by '{os.pathsep}'."
    )
    data: Path | None = Field(
        default=None, description="Folder of what clients leave behind and of crashes; empty: a temporary one."
    )
    parameters_mb: int = Field(
        default=0, ge=0, le=1 << 20, description="Limit of the parameters that clients may put; 0: none may."
    )
    quarantine_s: float = Field(
        default=600.0,
        ge=0,
        le=604800,
        description="How long an op does not run after it crashed a process; 0: it does.",
    )
    reload: bool = Field(default=False, description="Serve a plug-in op anew when a file of its folder is saved.")
    strict: bool = Field(default=False, description="Refuse to start when a plug-in op is broken.")
    require_verdict: Literal["pass"] | None = Field(
        default=None, description="pass: refuse ops that have no current verdict pass (412); empty: serve all."
    )
    device: str = Field(default="auto", description="Device for requests that name none: auto, cpu, gpu or gpu:N.")
    gpu_memory_mb: int = Field(
        default=0, ge=0, description="Largest part of each GPU's memory to use; 0: as much as needed."
    )
    max_json_mb: int = Field(default=32, ge=1, le=1024, description="Limit of a JSON body.")
    max_body_mb: int = Field(default=256, ge=1, le=65536, description="Limit of a binary body.")
    max_inflight_mb: int = Field(default=1024, ge=1, description="Limit of all bodies in progress together.")
    linearizations_mb: int = Field(
        default=512, ge=0, description="Limit of what is kept of forward passes, divided among the workers; 0: none."
    )
    max_elements: int = Field(
        default=1 << 22, ge=1, description="Limit of the elements of a matrix or a batch of directions."
    )
    queue: int = Field(
        default=1024, ge=1, description="Limit of requests waiting for TensorFlow; half of it for any one op."
    )
    deadline_s: float = Field(
        default=60.0, gt=0, le=3600, description="Limit of a request, from its first byte to its response."
    )
    checks: int = Field(default=2, ge=0, le=64, description="How many gradient checks may be in progress; 0: none.")
    check_processes: int = Field(
        default=2, ge=0, le=64, description="Processes for gradient checks, of which CHECKS are used; 0: the service's."
    )
    checks_s: float = Field(
        default=600.0, gt=0, le=86400, description="Limit of a stream of checks (/v1/checks); of an op, a fifth."
    )
    jobs: int = Field(
        default=2, ge=0, le=64, description="How many jobs (Prefer: respond-async) run at a time; 0: none."
    )
    jobs_mb: int = Field(
        default=1024, ge=1, le=1 << 20, description="Limit of jobs and their answers; with keys, half of it for each."
    )
    key_jobs: int = Field(
        default=1000, ge=1, le=1 << 20, description="Limit of jobs with the same key that wait or run."
    )
    job_s: float = Field(default=3600.0, gt=0, le=604800, description="Limit of the time that a job runs.")
    process_memory_mb: int = Field(
        default=2048, ge=512, description="Limit of the memory of a process of checks or jobs."
    )
    connections: int = Field(default=4096, ge=1, le=1 << 20, description="Limit of open connections of a process.")
    drain_s: float = Field(default=5.0, ge=0, le=600, description="How long readiness is 503 before the server stops.")
    grace_s: float = Field(default=25.0, ge=0, le=3600, description="Time to finish requests when the server stops.")
    express: bool = Field(
        default=True,
        description="Answer requests that differ from earlier ones only in their numbers on the fast path.",
    )
    warm_up: bool = Field(default=True, description="Compile for the first small requests while the server is idle.")
    protocols: Annotated[tuple[str, ...], NoDecode] = Field(
        default=tuple(PROTOCOLS), description="Other protocols to serve, separated by ','; empty: none."
    )
    log: Literal["text", "json"] = Field(default="text", description="Format of the log, one line per request.")
    metrics: bool = Field(default=True, description="Collect metrics and serve /metrics.")
    otel: bool = Field(default=False, description="Export traces by OTLP, as OpenTelemetry's variables (OTEL_*) say.")

    @field_validator("ops_path", mode="before")
    @classmethod
    def _split_path(cls, value: object) -> object:
        return tuple(Path(p) for p in value.split(os.pathsep) if p) if isinstance(value, str) else value

    @field_validator("protocols", "hosts", "origins", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        return tuple(p.strip() for p in value.split(",") if p.strip()) if isinstance(value, str) else value

    @field_validator("protocols")
    @classmethod
    def _check_protocols(cls, protocols: tuple[str, ...]) -> tuple[str, ...]:
        if not set(protocols) <= set(PROTOCOLS):
            raise ValueError(f"some of {', '.join(PROTOCOLS)}")
        return protocols

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return _matching(_HOST, hosts, "hosts without ports, such as localhost,[::1]")

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return _matching(_ORIGIN, tuple(origin.lower() for origin in origins), "origins such as https://example.org")

    @field_validator("tls_cert", "tls_key", "keys_file", "data", "require_verdict", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("tls_key")
    @classmethod
    def _check_tls_key(cls, key: Path | None, info: ValidationInfo) -> Path | None:
        if key is not None and info.data.get("tls_cert") is None:
            raise ValueError("PULLBACK_TLS_CERT too")
        return key

    @field_validator("otel")
    @classmethod
    def _check_otel(cls, is_on: bool) -> bool:
        if is_on and (fault := _missing(*OTEL)):
            raise ValueError(f"0, or the package {fault}, which is not installed: pip install 'pullback[otel]'")
        if is_on and (protocol := _otlp_protocol()) not in ("", OTLP):
            raise ValueError(f"0, or {OTLP} as OTEL_EXPORTER_OTLP_PROTOCOL, which is {protocol!r}")
        return is_on

    @property
    def processes(self) -> int:
        """How many processes the service has at most that compute: its workers, and those of checks and jobs."""
        of_checks = self.check_processes if self.checks else 0
        return (self.workers + self.jobs) * (1 + of_checks)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host.startswith("unix:"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _missing(*modules: str) -> str:
    """Return the first of these modules that is not installed, empty if all are."""
    for module in modules:
        parents = module.split(".")
        if any(find_spec(".".join(parents[:count])) is None for count in range(1, len(parents) + 1)):
            return module
    return ""


def _otlp_protocol() -> str:
    """Return the protocol that the environment chooses for traces, empty for the default."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    return next((os.environ[name].strip().lower() for name in names if os.environ.get(name, "").strip()), "")


def _matching(pattern: re.Pattern[str], items: tuple[str, ...], expected: str) -> tuple[str, ...]:
    """Return ``items``; raises ``ValueError`` with what was expected if one does not match."""
    if not all(map(pattern.fullmatch, items)):
        raise ValueError(expected)
    return items
