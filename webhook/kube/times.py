"""Times as the API server writes them: RFC 3339."""

from datetime import datetime


def since_1970(text: str | None) -> float | None:
    """A time in seconds since 1970; None without a time, or if the text is not one."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
