"""One numbered file per schema version; a released file never changes."""
