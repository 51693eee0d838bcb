"""Hugging Face configs: read into models, or rejected by the name of what is not understood."""
