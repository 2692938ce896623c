"""Inputs for tests, built in code: no binary file is kept in the repository."""
