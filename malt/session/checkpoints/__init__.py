"""What a training goes on from: `malt.Checkpoint`, and the values that its files hold."""
