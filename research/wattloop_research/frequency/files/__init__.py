"""Files of plans, and what was measured of them, in Perseus' forms."""
