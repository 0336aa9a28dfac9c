"""Stand-in sites: packaged web applications that replace WebArena's sites, with invented content, and their tasks."""
