"""What tests share: oracles, adversarial neighbors, servers and simulated faults."""
