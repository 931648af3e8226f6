"""What the other rooms talk about: the state of a job, records of the store, labels, names."""
