"""The measuring house: processes, rounds, checks and reports. Standard library only."""
