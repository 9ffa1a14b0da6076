"""Numbers as text."""


def counted(n: int, noun: str) -> str:
    """Return a count and its noun.

    Args:
        n: The count.
        noun: The noun in the singular, whose plural ends in s.

    Example:
        >>> counted(1, "episode"), counted(2000, "step")
        ('1 episode', '2,000 steps')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
