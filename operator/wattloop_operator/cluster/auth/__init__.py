"""Who calls the reporting API, and what the caller may report."""
