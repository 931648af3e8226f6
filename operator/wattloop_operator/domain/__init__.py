"""Values that all packages share: snapshots, records of the store, names and labels."""
