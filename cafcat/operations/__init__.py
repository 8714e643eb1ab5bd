"""The operations of cafcat: one package each, and the modules that several operations share.

Most packages have options, a report, and `run(session, options)`.
"""
