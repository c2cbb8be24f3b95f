"""Programs that tests run as processes of their own, to fork them and to freeze them."""
