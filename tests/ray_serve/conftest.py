"""The fixtures of the fleet that are the same for Ray Serve, and its figures."""

from tests.fleet.conftest import cases, figures, ops, pytest_terminal_summary

__all__ = ["cases", "figures", "ops", "pytest_terminal_summary"]
