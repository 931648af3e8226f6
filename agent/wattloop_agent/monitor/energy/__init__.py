"""Energy accounting: energy of each GPU and its attribution to pods, stored across restarts."""
