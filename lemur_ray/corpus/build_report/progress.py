"""Progress of the step that reads and filters documents: one line per source with counts, speed and time left."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from lemur_ray.corpus.sources.listing import Listing

_EVERY_S = 10.0


class SourceProgress:
    """Counts of the parts that were cleaned since this object was made, by source, and progress lines about them."""

    def __init__(self, listing: Listing, to_do: list[str], say: Callable[[str], None]) -> None:
        """to_do: keys of the parts that are cleaned now. say: reports a line."""
        self._say = say
        self._began = self._reported = time.monotonic()
        numbers = {part: number for number, part in enumerate(listing.parts)}
        names = {number: entry["name"] for entry in listing.sources for number in entry["parts"]}
        self._source = {part: names[numbers[part]] for part in to_do}
        self._size = {part: listing.sizes[numbers[part]] for part in to_do}
        self._left: Counter[str] = Counter()
        for part in to_do:
            self._left[self._source[part]] += self._size[part]
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in self._left}
        self._dropped: dict[str, Counter[str]] = {name: Counter() for name in self._left}

    def add(self, part: str, counts: Mapping[str, Any]) -> None:
        """Count a cleaned part under its source; each part is added once. part: its key, one of ``to_do``; counts: as
        ``stages.clean_part`` returns them. Reports a line for each source in progress if the last such report is more
        than 10 s old, else a line for the part's source if this was its last part."""
        name = self._source[part]
        dropped = counts["dropped"]
        self._counts[name] += Counter(
            bytes=self._size[part], read=counts["read"], kept=counts["read"] - sum(dropped.values())
        )
        self._dropped[name] += Counter(dropped)
        self._left[name] -= self._size[part]
        if time.monotonic() - self._reported > _EVERY_S:
            self._reported = time.monotonic()
            for other in self._counts:
                if self._counts[other] and (self._left[other] or other == name):
                    self._say(self.line(other))
        elif self._left[name] <= 0:
            self._say(self.line(name))

    def line(self, name: str) -> str:
        """Progress of a source in this run: documents read, kept and dropped, MB/s, time left for all sources."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        counts, left = self._counts[name], sum(self._left.values())
        rate = sum(one["bytes"] for one in self._counts.values()) / seconds
        rules = ", ".join(f"{rule} {count:,}" for rule, count in self._dropped[name].most_common()) or "none"
        return (
            f"{name}: read {counts['read']:,}, kept {counts['kept']:,}, dropped {rules}; "
            f"{counts['bytes'] / 1e6 / seconds:.1f} MB/s, about {left / max(rate, 1.0):.0f} s left for all sources"
        )
