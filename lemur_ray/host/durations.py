"""Formats durations as short texts."""


def duration(seconds: float) -> str:
    """A number of seconds as a short text, rounded down: 65 -> 1:05, 4000 -> 1:06:40, 300000 -> 3 d 11 h."""
    whole = int(seconds)
    if whole >= 86400:
        return f"{whole // 86400} d {whole % 86400 // 3600} h"
    hours, rest = divmod(whole, 3600)
    return (f"{hours}:{rest // 60:02d}" if hours else f"{rest // 60}") + f":{rest % 60:02d}"
