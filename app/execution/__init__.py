"""Where work runs: the engine, the lane, natural batching, fairness, the watchdog, warm-up."""
