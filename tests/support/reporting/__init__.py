"""Stand-ins for the reporting API and its callers."""
