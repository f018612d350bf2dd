"""Pullback: gradient evaluation over HTTP."""

__version__ = "0.1.0"
