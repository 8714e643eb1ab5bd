"""The commands that adopt, inspect, convert and export archives."""
