"""How a local disk makes files and makes them durable."""
