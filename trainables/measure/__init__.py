"""What is measured of a trial while it trains, how sure it is, and what it means."""
