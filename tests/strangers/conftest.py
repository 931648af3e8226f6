"""The scripts are programs, which nothing imports."""

collect_ignore = ["scripts"]
