"""A first request that works as it stands: the service prints it when it is ready, and shows it in /docs."""

from collections.abc import Sequence

ADDRESS = "http://127.0.0.1:8000"
"""That of the service by default."""


def first_request(address: str = ADDRESS, options: Sequence[str] = ()) -> str:
    """Return a command for curl, with the ``options`` that the service needs."""
    body = """-H 'Content-Type: application/json' -d '{"inputs":{"x":[0,100]},"order":2}'"""
    return " ".join(["curl -s", *options, f"{address}/v1/ops/log1pexp/gradients", body])
