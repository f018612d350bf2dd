"""What decides on traces: the settings, the sampler of the environment, and a request with many stages."""

import sys
from dataclasses import dataclass, field
from typing import NoReturn

import pytest
from opentelemetry.sdk.trace.sampling import ParentBased
from pydantic import ValidationError

from app.__main__ import faults
from app.errors import CannotStart
from app.settings import Settings
from app.telemetry.spans import Spans
from app.telemetry.stage_times import MAX_INTERVALS, StageTimes

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass
class Asked:
    """A request."""

    traceparent: bytes = b""
    tracestate: bytes = b""
    method: str = "POST"
    began: float = 1.0
    target: str = "/v1/ops"
    status: int = 200
    id: bytes = b"r1"
    scheme: str = "http"
    route: str = "/v1/ops"
    times: StageTimes | None = field(default=None)


def parent(flags: str) -> Asked:
    return Asked(f"00-{TRACE}-{SPAN}-{flags}".encode())


@pytest.mark.parametrize(
    ("sampler", "sampled"),
    [
        ("", (True, True, False)),
        ("always_on", (True, True, True)),
        ("always_off", (False, False, False)),
        ("parentbased_always_off", (False, True, False)),
        ("no_such_sampler", (True, True, False)),
    ],
)
def test_the_sampler_is_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, sampler: str, sampled: tuple[bool, ...]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    spans = Spans()
    asked = (Asked(), parent("01"), parent("00"))
    times = [spans.begin(one) for one in asked]
    assert tuple(found is not None for found in times) == sampled
    assert all(found is None or found.trace_id == TRACE for found in times[1:])
    spans.close()


def test_a_disabled_sdk_traces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    spans = Spans()
    assert spans.begin(Asked()) is None
    assert spans.begin(parent("01")) is None
    spans.close()


def test_the_stages_of_a_request_are_bounded() -> None:
    spans = Spans()
    one = Asked()
    times = spans.begin(one)
    assert times is not None
    for number in range(MAX_INTERVALS + 7):
        times.add("compute", 2.0 + number, 3.0 + number)
    assert (len(times.intervals), times.dropped) == (MAX_INTERVALS, 7)
    spans.end(one, times, "square", "vjp", 100.0)
    assert times.span.attributes["pullback.stages.dropped"] == 7
    # A request that has ended keeps nothing of its batches.
    assert not times.intervals
    spans.close()


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "opentelemetry"])
def test_a_missing_package_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert not Settings(otel=False).otel
    with pytest.raises(ValidationError) as refused:
        Settings(otel=True)
    (line,) = faults(refused.value)
    assert line.startswith("PULLBACK_OTEL: expected 0, or the package opentelemetry.")
    assert "pip install 'pullback[otel]'" in line


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_another_protocol_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http/protobuf")
    assert Settings(otel=True).otel
    monkeypatch.setenv(name, "grpc")
    with pytest.raises(ValidationError, match="http/protobuf"):
        Settings(otel=True)


def test_a_sampler_that_fails_fails_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: object, **options: object) -> NoReturn:
        raise RuntimeError("no quota")

    monkeypatch.setattr(ParentBased, "should_sample", fails)
    spans = Spans()
    assert spans.begin(parent("01")) is None
    assert "no quota" in caplog.text
    spans.close()


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000000")]
)
def test_an_invalid_variable_stops_the_start(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CannotStart, match=r"^PULLBACK_OTEL: expected valid variables OTEL_\*: "):
        Spans()
