"""`OptimisticUpdate`: a fragment that changes an item if no other writer did meanwhile."""
