"""Programs that show Fairlock at work."""
