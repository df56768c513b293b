"""What clients did and saw, and what a history must not show."""
