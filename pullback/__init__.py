"""Pullback: gradient evaluation over HTTP.

This package is the client: ``Client`` and ``AsyncClient`` send requests, ``errors`` lists the exceptions. The command
line is ``pullback``, or ``python -m pullback``.
"""

from pullback import results
from pullback.async_client import AsyncClient
from pullback.catalogue import Contract, ListedOp, OpSummary
from pullback.client import Client
from pullback.errors import (
    BadArgument,
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    DeadlinePassed,
    Gone,
    NotFound,
    NotPullback,
    OpFailed,
    Overloaded,
    ProblemError,
    PullbackError,
    RateLimited,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unprocessable,
    Unverified,
)
from pullback.graph_values import Attribute
from pullback.jobs import AsyncJob, Job, JobState
from pullback.linearization import AsyncLinearization, Linearization
from pullback.op import AsyncComposedOp, AsyncOp, ComposedOp, Op
from pullback.reports import Report, Verification
from pullback.results import *  # noqa: F403 - every result that it lists

__version__ = "0.4.0.dev0"

__all__ = [
    "AsyncClient",
    "AsyncComposedOp",
    "AsyncJob",
    "AsyncLinearization",
    "AsyncOp",
    "Attribute",
    "BadArgument",
    "CannotConnect",
    "Client",
    "ClientClosed",
    "ComposedOp",
    "ConnectionLost",
    "Contract",
    "DeadlinePassed",
    "Gone",
    "Job",
    "JobState",
    "Linearization",
    "ListedOp",
    "NotFound",
    "NotPullback",
    "Op",
    "OpFailed",
    "OpSummary",
    "Overloaded",
    "ProblemError",
    "PullbackError",
    "RateLimited",
    "Report",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unprocessable",
    "Unverified",
    "Verification",
    "__version__",
]
__all__ += results.__all__
