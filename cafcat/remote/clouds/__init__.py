"""Google Cloud Storage and Azure Blob Storage as stores and sources use them."""
