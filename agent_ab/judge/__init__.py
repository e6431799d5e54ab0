"""The independent judge: what the target itself says of the places where two replies part."""
