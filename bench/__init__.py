"""What the project says about speed and price, measured on the embedded AWS."""
