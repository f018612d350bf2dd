"""The command line: ``pullback serve | new | native | doctor | ops | show | graph | call | check | watch | verify``."""

from pullback.cli.commands import main

__all__ = ["main"]
