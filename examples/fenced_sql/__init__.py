"""A SQL database that refuses a writer whose lock was taken over."""
