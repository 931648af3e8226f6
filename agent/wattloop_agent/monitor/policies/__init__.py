"""The limits of GPUPowerPolicies: kept on disk, checked at each request, watched while leases last."""
