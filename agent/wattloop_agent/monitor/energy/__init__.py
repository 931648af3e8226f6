"""Energy accounting of the monitor: energy of each GPU and its attribution to pods, stored across restarts."""
