"""Transactions as folds of `__transaction_state`."""
