"""Cases that `make second-engine` runs beside tests of tests/e2e."""
