"""Disclosure control: site limits, small groups, withheld sites, and what each reply reveals."""
