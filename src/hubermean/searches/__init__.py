"""Private searches by the exponential mechanism: scale, center, tails and contribution bound."""
