"""The monitor's energy accounting: what each GPU has used, whose that was, kept over restarts."""
