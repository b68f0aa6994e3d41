"""A run from its plan to its end: what is composed of the Advisor, the journal and Ray, and taken up again."""
