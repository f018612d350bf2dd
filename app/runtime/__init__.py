"""How TensorFlow runs a program on this machine: modes, traces, cancellation, devices."""
