"""Authentication of clients: TLS and SASL on a broker's listeners. A PLAINTEXT listener has neither.

jaas               users and passwords of `sasl.jaas.config`
principal_mapping  `ssl.principal.mapping.rules`: a certificate's name as a user's
certificates       a certificate's distinguished name
sasl_server        what the server's side of a SASL mechanism is
plain              PLAIN (RFC 4616)
scram              SCRAM-SHA-256, SCRAM-SHA-512 (RFC 5802)
oauthbearer        OAUTHBEARER (RFC 7628): tokens, and their signatures
authenticator      the order of a connection's SASL requests; Kafka's `SaslServerAuthenticator`
jwks               the keys that sign tokens, from a file or a server
tls                TLS by PEM files
watched_context    a TLS context that follows its files
gate               the authenticator of one connection, in front of its broker's face
endpoint_security  the security of a process's listeners, by its settings
"""
