"""File input and output: bounded reads, atomic writes, and errors that name line and column."""
