"""Runs gateways beside each other, and says what a request costs them."""
