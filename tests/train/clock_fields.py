"""Fields of a line of metrics that the clock and the machine decide."""

CLOCK = (
    "tokens_per_s", "step_s", "time_s", "eta_s", "first_step_s", "unix_s", "flops_per_s_6n", "flops_per_s_6n_causal",
    "mfu_6n", "mfu_6n_causal", "device_memory_peak_bytes", "host_memory_peak_bytes",
)  # fmt: skip
"""What of a line depends on the machine and the clock. Everything else is equal however often a run was resumed."""
