"""A durable function that charges a customer, one charge at a time, and sleeps while it holds."""
