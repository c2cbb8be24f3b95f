"""The stacks that this repository deploys."""
