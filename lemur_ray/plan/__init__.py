"""Which row of which source comes when, as a pure function, and the stream of those rows. Ray only in feed.py."""
