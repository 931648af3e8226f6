"""The GPUs that a process uses: NVML, the node agent and its socket, and which GPUs are the process's own."""
