"""What runs in the container."""
