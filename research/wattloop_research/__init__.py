"""The laboratory: simulates policies on traces, plans pipelines from files, compares and draws what was measured."""
