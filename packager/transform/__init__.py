"""Executes a plan's changes to files: strip, rpath; and reads back what was written."""
