"""Numbers as text."""


def counted(n: int, noun: str) -> str:
    """Return a count and its noun."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
