"""Life cycle of a run on the Advisor, the journal and Ray: plan, study, resumption, interruption, shutdown."""
