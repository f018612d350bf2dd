"""The registered ops, one page each. They take their vocabulary from here: ``from ops import Op, ...``."""

from pullback.ops import *  # noqa: F403 - every name that it lists
