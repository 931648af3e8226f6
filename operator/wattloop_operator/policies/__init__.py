"""What GPUPowerPolicies mean for nodes: pure functions of the policies and the nodes' labels."""
