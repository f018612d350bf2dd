"""What the service tells its operator: counters, Prometheus metrics, the log."""
