"""The settings, all from ``PULLBACK_*`` environment variables, read once and frozen."""

import os
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MB = 1 << 20

ProtocolName = Literal["umbridge", "tesseract", "openinference"]
PROTOCOL_NAMES: tuple[ProtocolName, ...] = get_args(ProtocolName)


class Settings(BaseSettings):
    """What an operator can set. Sizes are in MiB, times in seconds, elements are numbers of a tensor."""

    model_config = SettingsConfigDict(env_prefix="PULLBACK_", frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(default=1, ge=1, le=64, description="Server processes.")
    ops_path: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(), description=f"Folders with plug-in ops, separated by '{os.pathsep}'."
    )
    strict: bool = Field(default=False, description="Refuse to start when a plug-in op is broken.")
    device: str = Field(default="auto", description="Where requests without a device run: auto, cpu, gpu or gpu:N.")
    gpu_memory_mb: int = Field(
        default=0, ge=0, description="Memory of each GPU to take at most; 0: what is needed, and no more."
    )
    max_json_mb: int = Field(default=32, ge=1, le=1024, description="Limit of a JSON body.")
    max_body_mb: int = Field(default=256, ge=1, le=65536, description="Limit of a binary body.")
    max_inflight_mb: int = Field(
        default=1024, ge=1, description="Limit of all bodies being read or worked on together."
    )
    max_elements: int = Field(
        default=1 << 22, ge=1, description="Limit of the numbers in a matrix or a batch of directions."
    )
    queue: int = Field(
        default=1024, ge=1, description="Limit of requests waiting for TensorFlow; of one op alone, half of it."
    )
    deadline_s: float = Field(
        default=60.0, gt=0, le=3600, description="Limit of a request, from its headers to its answer."
    )
    checks_s: float = Field(default=600.0, gt=0, le=86400, description="Limit of a stream of checks (/v1/checks).")
    check_work: int = Field(
        default=1 << 24, ge=1 << 10, description="Limit of the numbers that one numeric derivative asks an op for."
    )
    drain_s: float = Field(
        default=5.0, ge=0, le=600, description="Readiness is 503 for so long before the server stops."
    )
    grace_s: float = Field(default=25.0, ge=0, le=3600, description="Time for what is in flight when the server stops.")
    warm_up: bool = Field(
        default=True, description="Compile what the first small requests ask for, while there is nothing else to do."
    )
    protocols: Annotated[tuple[ProtocolName, ...], NoDecode] = Field(
        default=PROTOCOL_NAMES, description="Other protocols to serve, separated by ','; empty: none."
    )
    log: Literal["text", "json"] = Field(default="text", description="Form of the log, one line a request.")
    metrics: bool = Field(default=True, description="Count, and answer /metrics.")

    @field_validator("ops_path", mode="before")
    @classmethod
    def _split_path(cls, value: object) -> object:
        return tuple(Path(p) for p in value.split(os.pathsep) if p) if isinstance(value, str) else value

    @field_validator("protocols", mode="before")
    @classmethod
    def _split_protocols(cls, value: object) -> object:
        return tuple(p.strip() for p in value.split(",") if p.strip()) if isinstance(value, str) else value
