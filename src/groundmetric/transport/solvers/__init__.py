"""Solvers: a file for each way to compare two distributions."""
