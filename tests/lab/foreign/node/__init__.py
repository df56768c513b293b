"""Clients in JavaScript: KafkaJS and @platformatic/kafka, each in a process of Node.js, called from Python.

package.json      the clients and the Node.js that they run on, with exact versions
host.mjs          runs calls that come as lines of JSON
inbox.mjs         what came to a consumer and was not polled yet
kafkajs.mjs       producer, consumer and admin client of KafkaJS
platformatic.mjs  the same of @platformatic/kafka
process           installs the packages, and calls a program
clients           the face that clients in Python have, too
records           null keys and values, headers, timestamps; committed offsets after a restart
kafkajs_admin     the admin client of KafkaJS, call by call
platformatic_admin  the same of @platformatic/kafka
security          SCRAM over TLS
suite             all of it, as checks
"""
