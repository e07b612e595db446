"""The benchmark: the tables of the paper, other methods (peers) on the same data, their errors and cost.

A table is a declaration (`tables`), a case is people with known effects (`cases`, `real_data`), a contender
estimates them (`contenders`), and a cell is one contender on one case (`runner`). `scores` measures the
errors and `comparison` summarises the finished cells.
"""
