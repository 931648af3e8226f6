"""The back end in memory, and the contract that every back end keeps."""
