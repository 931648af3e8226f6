"""Authentication and authorization of callers of the reporting API."""
