"""Power limits: measured profiles and what they call for."""
