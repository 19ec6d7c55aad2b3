"""The paper's numerical examples: every panel and every baseline, from seeded data sets to a page of verdicts.

panels -> data -> methods -> simulation -> rows -> run -> curves -> claims -> plots, summary -> reproduction
"""
