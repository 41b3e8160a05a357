"""What placement is compared on and with: random clusters, and other placers."""
