"""Training images: sources, generated ones, loaders, and the transfer to the device."""
