"""What a broker shows of itself over HTTP: metrics and health.

of_image      gauges that follow from the metadata
of_partitions gauges of each partition, by the names of Kafka and of kafka_exporter
of_broker     what a broker counts, its logs and their cleaner
of_metadata_log  the metadata log, by the names of Kafka's Raft metrics
of_process    disk bytes, idle shares of threads, calls to stores
of_costs      what the calls cost, by purpose and list of prices
rates         what is computed between two scrapes: rates, quantiles
exposition    Prometheus' text format, by prometheus-client
health        /livez, /readyz, /safe-to-restart as decisions
login         who may read
http_server   the listening socket
broker_page   all of one broker put together
"""
