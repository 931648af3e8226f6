"""The files that frequency planning reads and writes (docs/frequency.md, "Files")."""
