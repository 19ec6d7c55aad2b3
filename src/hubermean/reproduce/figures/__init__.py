"""The paper's numerical examples: every panel, every baseline, from seeded draws to a page that says what holds.

panels -> data -> methods -> tuning -> point -> store -> results -> curves, slopes, claims -> plots, summary
"""
