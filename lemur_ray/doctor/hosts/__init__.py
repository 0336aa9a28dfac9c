"""Checks of a cluster's hosts: whether their software and clocks agree, and whether they have room.

``host_facts`` runs on every host and uses the standard library alone; ``survey`` runs it there through Ray; the other
modules are functions of the collected facts."""
