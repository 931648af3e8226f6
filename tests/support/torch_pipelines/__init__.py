"""Small pipelines of PyTorch whose ranks are forked, which saves an import of PyTorch for each."""
