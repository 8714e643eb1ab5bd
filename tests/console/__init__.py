"""Tests of the console of `cafcat serve`."""
