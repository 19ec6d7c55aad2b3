"""Speed of reading, releasing and accounting beside plain engines."""
