"""Limits of whole numbers in space files and journals."""

MAX_COUNT = 2**31  # for counts
MAX_INTEGER = 2**63  # for all others: tables hold at most eight bytes
