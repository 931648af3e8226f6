"""The node agent: holds power limits as leases and streams the GPUs' energy counters."""
