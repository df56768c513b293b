"""Quotas of clients (KIP-13, KIP-124, KIP-219, KIP-546, KIP-599).

rates          the arithmetic: rates over a sliding window, a bucket of tokens
client_quotas  what each client has used, by its quota, and for how long it is throttled
client_apis    DescribeClientQuotas, AlterClientQuotas
"""
