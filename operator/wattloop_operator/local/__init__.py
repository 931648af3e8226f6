"""The local mode: jobs on this machine, with objects in a database and processes in place of pods."""
