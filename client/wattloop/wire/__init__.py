"""What processes say to each other: messages and their checks, environment variables, HTTP, process groups."""
