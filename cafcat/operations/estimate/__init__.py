"""Estimates what an ingest needs: objects, bytes, requests, dollars and hours."""
