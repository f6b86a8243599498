"""The calls of four published tutorials, as thin views of the one core."""
