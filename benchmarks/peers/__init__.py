"""Other indexes measured beside ours, each in its own process."""
