"""Space files: what to search, towards which objectives, checked against the trainable and the machine."""
