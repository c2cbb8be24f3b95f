"""The packages of a release: built, checked, and installed as a user would."""
