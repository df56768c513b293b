"""The controller: pure decisions on the image, and the one loop that commits them."""
