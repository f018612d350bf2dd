"""Our metrics under the names of Triton, for dashboards and autoscalers that were made for it."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import UntypedMetricFamily

from app.telemetry.counters import FIRST_ERROR

# The operations on an op that are not models of the Open Inference Protocol.
NOT_MODELS = ("gradients", "numeric", "check", "checks", "verify")
LABELS, VERSION = ("model", "version"), "1"
SUCCESS, FAILURE, COUNT = "nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count"
US = 1e6
# The name of Triton for each of our samples, and the factor between them.
RENAMED: Mapping[str, tuple[str, float]] = {
    "pullback_executions_total": ("nv_inference_exec_count", 1),
    "pullback_request_duration_seconds_sum": ("nv_inference_request_duration_us", US),
    "pullback_queue_seconds_total": ("nv_inference_queue_duration_us", US),
    "pullback_parse_seconds_total": ("nv_inference_compute_input_duration_us", US),
    "pullback_compute_seconds_total": ("nv_inference_compute_infer_duration_us", US),
    "pullback_serialise_seconds_total": ("nv_inference_compute_output_duration_us", US),
}
DOCUMENTS: Mapping[str, str] = {
    SUCCESS: "Requests that succeeded.",
    FAILURE: "Requests that failed.",
    COUNT: "Inferences: requests that succeeded.",
    **{name: f"{ours}, in Triton's unit." for ours, (name, _) in RENAMED.items()},
}


class TritonRegistry(CollectorRegistry):
    """A registry that also collects the metrics of operations under the names of Triton.

    They have its labels: the model and its version. Their type is unknown: Prometheus' client appends ``_total`` to the
    names of counters, and Triton does not.
    """

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, those with the names of Triton last."""
        metrics = list(super().collect())
        totals: dict[str, dict[str, float]] = {name: {} for name in DOCUMENTS}
        for sample in (sample for metric in metrics for sample in metric.samples):
            op, operation = sample.labels.get("op"), sample.labels.get("operation")
            if not op or operation in NOT_MODELS:
                continue
            if sample.name == "pullback_requests_total":
                is_error = int(sample.labels["status"]) >= FIRST_ERROR
                names = [(FAILURE, 1.0)] if is_error else [(SUCCESS, 1.0), (COUNT, 1.0)]
            else:
                names = [RENAMED[sample.name]] if sample.name in RENAMED else []
            model = op if operation == "forward" else f"{op}.{operation}"
            for name, factor in names:
                totals[name][model] = totals[name].get(model, 0.0) + sample.value * factor
        families = [UntypedMetricFamily(name, document, labels=LABELS) for name, document in DOCUMENTS.items()]
        for family in families:
            for model, total in totals[family.name].items():
                family.add_metric((model, VERSION), total)
        return [*metrics, *families]
