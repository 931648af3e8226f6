"""The same engine without a cluster: objects in the database, processes in place of pods."""
