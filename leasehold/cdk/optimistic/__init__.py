"""`OptimisticUpdate`: a fragment that changes an item unless somebody else did meanwhile."""
