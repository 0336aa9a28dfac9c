"""Browser actions of an agent, the two languages in which it writes them, and the rules that end an episode early."""
