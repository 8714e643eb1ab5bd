"""Object stores over the network: how they are reached, and how their objects are read."""
