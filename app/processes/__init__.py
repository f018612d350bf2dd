"""Processes of the service: how they are forked, asked, measured and ended. ``app.children`` has what runs in them."""
