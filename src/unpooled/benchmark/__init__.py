"""A fair benchmark: the paper's tables, peers in the same run, and what each of them costs.

A table is a declaration (`tables`), a case is people with known effects (`cases`), a contender estimates
them (`contenders`), and a cell is one contender on one case. Finished cells are never run again.
"""
