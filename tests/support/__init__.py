"""What tests share: one package a topic; tests import from here only."""
