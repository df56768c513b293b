"""The choice of a partition's next leader.

leader_election    Kafka's leader selectors, the unclean one too
eligible_leaders   eligible leader replicas (KIP-966)
preferred_leaders  elections on demand, and the balance of leaders over brokers
"""
