"""The order of training rows as a pure function, and streams of those rows. Ray only in feed.py."""
