"""The operations of cafcat, one package each: options, report, and `run(session, options)`."""
