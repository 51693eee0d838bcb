"""Work and time of one forward pass on one GPU: numbers in, numbers out."""
