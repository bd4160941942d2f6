"""Paddle 3's static programs (PIR) as a back end."""
