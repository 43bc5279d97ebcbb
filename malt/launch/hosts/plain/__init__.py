"""Jobs of plain processes on several hosts: what starts their ranks, and holds them."""
