"""Runs, events, the journal of changes, and listings that can be continued."""
