"""The controller of a leading operator: watch handlers, work queue, and its state for request threads."""
