"""Times as the API server writes them: RFC 3339."""

from datetime import datetime


def since_1970(text: str | None) -> float | None:
    """Seconds since 1970 of a time; None for none, and for what is no such time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
