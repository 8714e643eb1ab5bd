"""The native part: small functions in C for work where Python is the limit. Each has an equal in Python.

docs/decisions/0043-a-native-part.md has the reasons.
"""
