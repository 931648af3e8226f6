"""GPU power limits: measures them during training and selects one."""
