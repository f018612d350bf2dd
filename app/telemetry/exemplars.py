"""Exemplars: beside each bucket of a histogram, the latest traced request that is in it (OpenMetrics).

Prometheus' client keeps none where several workers share their numbers. Here those of the worker that answers a scrape
are added to the histograms of all.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from app.telemetry.counters import Counters, CounterTable, Distribution

Select: TypeAlias = Callable[[Counters], Distribution]


class WithExemplars(Collector):
    """The metrics of ``source``, with exemplars in the histograms that ``selected`` names."""

    def __init__(self, source: Collector, table: CounterTable, selected: Mapping[str, Select]) -> None:
        """Take the exemplars of the distributions in ``table``."""
        self._source, self._table, self._selected = source, table, selected

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        for metric in self._source.collect():
            if (select := self._selected.get(metric.name)) is not None:
                metric.samples = [self._with_exemplar(sample, select) for sample in metric.samples]
            yield metric

    def _with_exemplar(self, sample: Sample, select: Select) -> Sample:
        labels = sample.labels
        counters = self._table.get((labels.get("op", ""), labels.get("operation", "")))
        if counters is None or "le" not in labels:
            return sample
        values = select(counters)
        found = values.exemplars.get(bisect_left(values.bounds, float(labels["le"])))
        if found is None:
            return sample
        return sample._replace(
            exemplar=Exemplar({"trace_id": found.trace_id, "span_id": found.span_id}, found.value, found.time)
        )
