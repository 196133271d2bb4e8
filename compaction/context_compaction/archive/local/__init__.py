"""The archive in a folder of this machine: logs, blobs and a search index."""
