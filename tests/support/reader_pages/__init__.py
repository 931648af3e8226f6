"""The pages of the docs site for readers, their code blocks, and where each block runs."""
