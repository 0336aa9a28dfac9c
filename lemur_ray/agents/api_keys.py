"""API keys of endpoints: read from an environment variable or a file, pickled to workers, never displayed.

A key is pickled with its policy, so that it reaches hosts whose environment lacks the variable. Its value is in no
``repr``, and is removed from everything that an endpoint returns. If the variable is unset, ``NAME_FILE`` may name a
file with the key, which is read again after a refusal. A key is sent in the header ``Authorization``."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

USUAL = "OPENAI_API_KEY"
HIDDEN = "<key>"
SHORTEST = 8
"""Minimum characters of a key that is masked in texts; shorter ones would occur by chance."""


class Key:
    """API key of one endpoint; false as a condition if it is empty. ``name``: environment variable that it was read
    from; ``file``: file, if any; ``flag``: command-line flag that names the variable, for errors."""

    __slots__ = ("_value", "file", "flag", "name")

    def __init__(self, value: str = "", *, name: str = "", file: str = "", flag: str = "--policy-key-env") -> None:
        """Raises ValueError, without quoting the key, if it has characters that no HTTP header can carry."""
        if not (value.isascii() and value.isprintable()) or " " in value:
            where = f"{name} " if name else ""
            raise ValueError(f"{flag} {where}holds a key with blanks, line breaks or letters that no header can carry")
        self._value, self.name, self.file, self.flag = value, name, file, flag

    @classmethod
    def named(cls, name: str, flag: str, environment: Mapping[str, str] = os.environ) -> "Key":
        """Read the key from environment variable ``name``, or from the file that ``NAME_FILE`` names. ``flag``:
        command-line flag that names the variable, for errors. Raises ValueError if both are unset or empty, or the file
        is unreadable."""
        if value := environment.get(name, "").strip():
            return cls(value, name=name, flag=flag)
        file = environment.get(f"{name}_FILE", "")
        if file:
            try:
                value = Path(file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeError) as error:
                raise ValueError(f"{flag} {name}: {name}_FILE names {file}, which cannot be read ({error})") from None
            if value:
                return cls(value, name=name, file=file, flag=flag)
        problem = "it is empty" if name in environment or file else "there is no such environment variable"
        raise ValueError(f"{flag} {name}: {problem}; set it to the endpoint's key in the environment of this command")

    @classmethod
    def of(cls, name: str, flag: str, url: str, environment: Mapping[str, str] = os.environ) -> "Key":
        """The key in variable ``name``. Without a name: ``OPENAI_API_KEY`` if ``url`` is OpenAI's or that in
        ``OPENAI_BASE_URL``, else an empty key. ``flag``: command-line flag that gave the name, for errors. Raises
        ValueError if the named variable has no valid key."""
        if name:
            return cls.named(name, flag, environment)
        if environment.get(USUAL, "").strip() and _origin(url) and _is_usual(url, environment):
            return cls.named(USUAL, flag, environment)
        return cls(flag=flag)

    def __bool__(self) -> bool:
        return bool(self._value)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def hidden_in(self, text: str) -> str:
        """``text`` with every occurrence of the key replaced by ``<key>``; keys under 8 characters are not replaced."""
        return text.replace(self._value, HIDDEN) if len(self._value) >= SHORTEST else text

    def renewed(self) -> "Key | None":
        """The key that this one's file holds now; None if it is the same, unreadable, or there is no file."""
        if self.file:
            with contextlib.suppress(OSError, UnicodeError, ValueError):
                value = Path(self.file).read_text(encoding="utf-8").strip()
                if value and value != self._value:
                    return Key(value, name=self.name, file=self.file, flag=self.flag)
        return None

    def __repr__(self) -> str:
        return f"Key({self.name or ('unnamed' if self._value else 'none')})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[str, str, str, str]:
        return self._value, self.name, self.file, self.flag


def _is_usual(url: str, environment: Mapping[str, str]) -> bool:
    host = urlsplit(url).hostname or ""
    openai = url.startswith("https://") and (host == "api.openai.com" or host.endswith(".api.openai.com"))
    return openai or _origin(url) == _origin(environment.get("OPENAI_BASE_URL", ""))


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        return (parts.scheme, parts.hostname, parts.port) if parts.hostname else None
    except ValueError:
        return None
