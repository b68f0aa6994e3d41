"""VGG19, its layers, and what computes them fastest."""
