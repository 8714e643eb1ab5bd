"""Commands that kill themselves at a chosen step, and work that runs beside them."""
