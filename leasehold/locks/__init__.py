"""What `LockClient` is made of: waiting, which is exclusion, and heartbeats, which are liveness.

    client ─▶ waiting ─▶ stores ─▶ connection
       │         └─────▶ lapses            who else's lease is over
       └───▶ heartbeats ─▶ rota            whose turn it is
                └────────▶ held ─▶ stores  one grant, and how long it lasts

No part of the public surface: import from `leasehold`.
"""
