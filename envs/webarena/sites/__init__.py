"""Stand-in sites: real web applications, installed from packages and seeded by this process, and the tasks on them."""
