"""Operations on the whole catalog: dumps, rebuilds and comparisons."""
