"""Helpers of this suite: stand-ins, simulated heartbeats, interrupts, requests on the wire."""
