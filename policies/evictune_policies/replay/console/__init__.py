"""`evictune-replay`: arguments in, tables, JSON and pages out."""
