"""A job's history for people: rows as table, CSV and JSON, the picture of costs, the picture of the trade-off."""
