"""One request on its way, and the broker that it is sent to."""
