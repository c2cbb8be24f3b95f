"""The JSON of the functions: the rules of each field, requests, and answers."""
