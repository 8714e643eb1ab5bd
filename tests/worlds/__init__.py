"""Catalogs, stores, servers, archives and killed processes that several tests share."""
