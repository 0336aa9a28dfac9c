"""Programs of the stand-in sites, run by path in the sites' own environment, and the modules that they import."""
