"""The port between a coordinator's state machine and its runtime."""
