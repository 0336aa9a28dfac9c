"""BFCL v4, single turn: which functions a model calls, and with which arguments."""
