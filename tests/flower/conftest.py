"""What is inside runs in the environment of Flower, started by `test_flower.py`."""

collect_ignore = ["inside"]
