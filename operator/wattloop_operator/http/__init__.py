"""The HTTP servers of the operator: bounded connections, and certificates that rotate."""
