"""Storage domains: which there are, and which tables of a topic's replicas are in them.

storage_domains  the domains, and where a topic is made
placements       the brokers and domains of a topic's replicas, by its configs
promotions       a domain with copies becomes the home
moves            a partition's replicas move to other domains, or to their brokers' roots
"""
