"""Files as Wattloop reads and writes them: whole or not at all, with errors that name line and column."""
