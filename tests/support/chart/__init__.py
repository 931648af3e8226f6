"""The rendered chart, and clusters that it is installed into."""
