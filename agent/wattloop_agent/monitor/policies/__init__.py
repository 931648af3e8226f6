"""GPUPowerPolicies on this node: stored on disk, enforced on requests, and checked on running leases."""
