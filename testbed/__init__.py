"""What the tests stand on: an embedded AWS, other engines, and AWS's own requirements."""
