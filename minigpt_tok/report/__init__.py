"""What a person sees: terminal tables, plots, the HTML report."""
