"""What the monitor takes from itself before it serves anybody, so that whoever takes it over has it neither."""
