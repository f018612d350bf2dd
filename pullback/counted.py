"""A count with its noun."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 op``, ``2 ops``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
