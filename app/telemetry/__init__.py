"""Information for the operator: counters, Prometheus metrics, the log."""
