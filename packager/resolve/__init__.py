"""Resolve: from an executable to the closure of everything that it loads. Reads, and never runs, the target."""
