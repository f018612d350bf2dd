"""Gradient checks: numeric differentiation with an error bar, and the verdicts that rest on it."""
