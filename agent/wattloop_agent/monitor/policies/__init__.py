"""GPUPowerPolicies on this node: stored on disk, enforced on requests, checked on leases."""
