"""The command line: it parses arguments, calls operations, and prints results."""
