"""One replica of one partition as one Delta table. Knows no broker, leader or ISR."""
