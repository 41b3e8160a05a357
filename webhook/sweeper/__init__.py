"""The sweeper: gathers gated pods into gangs, has them placed, pins and releases them."""
