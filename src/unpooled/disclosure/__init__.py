"""What may be told about people: limits, small groups, withheld sites, and what each reply reveals."""
