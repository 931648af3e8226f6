"""The reporting API: training processes say how far they are, and hear whether to stop."""
