"""Legal variants: schedulers that differ from the shipped one in what the specification leaves open.

Each keeps every rule, so each must pass the whole pack; a clause that fails on one assumes more than its rule says.
"""
