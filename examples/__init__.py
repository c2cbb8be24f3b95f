"""Programs that show Leasehold at work."""
