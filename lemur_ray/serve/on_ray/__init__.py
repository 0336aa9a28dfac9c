"""The service on a Ray cluster: deployments, groups of hosts, handles, vLLM."""
