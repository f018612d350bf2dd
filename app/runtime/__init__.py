"""Execution with TensorFlow on this machine: modes, traces, cancellation, devices."""
