"""From the bytes of a request to the bytes of its answer: operations, plans, negotiation, answering."""
