"""Two concurrent debits of one account: naive, optimistic, and with a lock."""
