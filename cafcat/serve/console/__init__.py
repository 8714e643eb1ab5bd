"""The console: pages of HTML about the catalog, below `/-/`. Each is a module in `pages/` and a template."""
