"""The node agent: holds GPU power limits and clocks as leases, and measures the GPUs' energy."""
