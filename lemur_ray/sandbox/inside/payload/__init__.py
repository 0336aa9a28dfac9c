"""Programs of ours whose texts are sent into a session: each file stands alone, the standard library is all it has."""
