"""The Zarr store of a sweep: where it is, how it is laid out, what of it is complete."""
