"""The privileged process: the only one that changes GPUs, with leases that survive crashes."""
