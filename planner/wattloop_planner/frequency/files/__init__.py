"""The files that frequency planning reads and writes (docs/internals/frequency.md, "Files")."""
