"""Energy and time of an attempt: what its processes report, what the node agents measure, which of both counts."""
