"""One tiny recurrence in a cluster, which shows whether all of Wattloop works there."""
