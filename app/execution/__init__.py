"""Where work runs: the engine, the scheduler, natural batching, fairness, the watchdog, warm-up."""
