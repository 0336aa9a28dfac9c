"""WebArena: an agent does web tasks in a real Chromium, on sites that the user runs or on replacements started here."""
