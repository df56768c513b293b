"""What tools print and read, byte for byte as Kafka's tools do."""
