"""How large whole numbers may be, in a space file as in a journal."""

LARGEST = 2**31  # of those that count something
WIDEST = 2**63  # of all others; no table holds more than eight bytes
