"""Avro's binary form without a library's leniency.

decoding   bytes of one schema as values of another
checks     what a value has to be before it is written
choices    the branch of a union as which it is written
"""
