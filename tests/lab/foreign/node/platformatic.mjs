// @platformatic/kafka: a producer, a consumer and the admin client, as its documentation does. Settings: Kafka's names.
import { readFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import * as kafka from '@platformatic/kafka'
import { Inbox, chunks } from './inbox.mjs'

const BATCH = 100
const EARLIEST = -2n
// The defaults, 0 and 0, name a producer: Kafka refuses them for a transactional id that belongs to another one.
const NEW_PRODUCER = { producerId: -1n, producerEpoch: -1 }

function connection(settings) {
  const found = { clientId: 'checks', bootstrapBrokers: settings['bootstrap.servers'].split(',') }
  if (settings['ssl.ca.location']) found.tls = { ca: [readFileSync(settings['ssl.ca.location'])] }
  if (settings['sasl.mechanism']) {
    const [username, password] = [settings['sasl.username'], settings['sasl.password']]
    found.sasl = { mechanism: settings['sasl.mechanism'], username, password }
  }
  if (settings.retries !== undefined) found.retries = settings.retries
  return found
}

export class Writer {
  #producer
  #transaction = null
  #sends = []

  constructor(settings) {
    const transactionalId = settings['transactional.id']
    const options = {
      ...connection(settings),
      acks: { all: -1, 1: 1, 0: 0 }[settings.acks ?? 'all'],
      compression: settings['compression.type'] ?? 'none',
      idempotent: settings['enable.idempotence'] ?? transactionalId !== undefined
    }
    this.#producer = new kafka.Producer(transactionalId === undefined ? options : { ...options, transactionalId })
  }

  async connect() {}

  // Sends batches without waiting for the one before.
  async send(topic, records) {
    const messages = records.map(each => ({
      topic,
      key: each.key ?? undefined,
      value: each.value ?? undefined,
      partition: each.partition,
      timestamp: each.timestamp ? BigInt(each.timestamp) : undefined,
      headers: new Map(each.headers.map(([name, value]) => [Buffer.from(name), value]))
    }))
    const sender = this.#transaction ?? this.#producer
    for (const each of chunks(messages, BATCH)) {
      const sent = sender.send({ messages: each })
      sent.catch(() => {})
      this.#sends.push(sent)
    }
  }

  async flush() {
    await Promise.all(this.#sends.splice(0))
  }

  // The producer id comes with the first transaction, not before.
  async initTransactions() {
    this.#transaction = await this.#producer.beginTransaction(NEW_PRODUCER)
  }

  async begin() {
    this.#transaction ??= await this.#producer.beginTransaction(NEW_PRODUCER)
  }

  // The offsets are those after messages that the reader got.
  async sendOffsets(_topic, offsets, reader) {
    await this.#transaction.addConsumer(reader.consumer)
    for (const [partition, offset] of offsets) {
      const message = reader.messageBefore(partition, offset)
      if (message !== undefined) await this.#transaction.addOffset(message)
    }
  }

  async commit() {
    await this.flush()
    await this.#ended(each => each.commit())
  }

  async abort() {
    await this.#ended(each => each.abort())
  }

  async #ended(end) {
    const transaction = this.#transaction
    this.#transaction = null
    this.#sends = []
    await end(transaction)
  }

  async close() {
    await this.#producer.close()
  }
}

export class Reader {
  consumer
  #topic = null
  #stream = null
  #messages = new Map()
  #inbox = new Inbox()
  #isEager
  #isModern
  #hasSought = false

  constructor(settings) {
    const options = {
      ...connection(settings),
      groupId: settings['group.id'] ?? `unused-${randomUUID()}`,
      autocommit: false,
      maxWaitTime: 200,
      isolationLevel: settings['isolation.level'] === 'read_committed' ? 1 : 0
    }
    const assignor = settings['partition.assignment.strategy'] ?? 'roundrobin'
    if (settings['group.instance.id']) options.groupInstanceId = settings['group.instance.id']
    if (settings['group.protocol'] === 'consumer') {
      options.groupProtocol = 'consumer'
      if (settings['group.remote.assignor']) options.groupRemoteAssignor = settings['group.remote.assignor']
    } else {
      options.sessionTimeout = settings['session.timeout.ms'] ?? 10_000
      options.rebalanceTimeout = 10_000
      options.heartbeatInterval = settings['heartbeat.interval.ms'] ?? 500
      options.protocols = [{ name: assignor, version: 1 }]
    }
    this.#isModern = options.groupProtocol === 'consumer'
    this.#isEager = !this.#isModern && assignor === 'roundrobin'
    this.consumer = new kafka.Consumer(options)
    this.consumer.on('consumer:group:rebalance', () => this.#isEager && this.#own([]))
    this.consumer.on('consumer:group:join', () => this.#own(this.#assigned()))
  }

  #assigned() {
    return (this.consumer.assignments ?? []).flatMap(({ topic, partitions }) => partitions.map(each => [topic, each]))
  }

  #own(partitions) {
    const wanted = new Set(partitions.map(([, partition]) => partition))
    this.#inbox.revoke(this.#inbox.owned.filter(([, partition]) => !wanted.has(partition)))
    const kept = this.#isEager ? [] : this.#inbox.owned.filter(([, partition]) => wanted.has(partition))
    this.#inbox.own(partitions, kept)
  }

  // No event comes with a new assignment of a KIP-848 group.
  #refresh() {
    const found = this.#assigned()
    if (this.#isModern && String(found) !== String(this.#inbox.owned)) this.#own(found)
  }

  async subscribe(topic) {
    this.#topic = topic
    await this.#consume({ mode: 'committed', fallbackMode: 'earliest' })
  }

  async assign(topic, partitions, offset) {
    this.#topic = topic
    const offsets = partitions.map(partition => ({ topic, partition, offset: BigInt(offset) }))
    for (const partition of partitions) this.#inbox.positions.set(partition, offset)
    await this.#consume({ mode: 'manual', offsets })
  }

  async #consume(options) {
    const stream = await this.consumer.consume({ topics: [this.#topic], ...options })
    this.#stream = stream
    stream.on('error', error => (this.#inbox.error = error))
    stream.on('data', message => stream === this.#stream && this.#receive(message))
  }

  #receive(message) {
    const { topic, partition, key, value, timestamp, headerEntries } = message
    this.#messages.set(`${partition}:${message.offset + 1n}`, message)
    const headers = headerEntries.map(([name, each]) => [name.toString(), each])
    const offset = Number(message.offset)
    this.#inbox.add({ topic, partition, offset, key, value, timestamp: Number(timestamp), headers })
  }

  messageBefore(partition, offset) {
    return this.#messages.get(`${partition}:${offset}`)
  }

  // A stream has no seek: another one begins at the offsets, with the next poll.
  seek(_topic, partition, offset) {
    this.#inbox.seek(partition, offset)
    this.#hasSought = true
  }

  async poll(waitMs) {
    this.#refresh()
    if (this.#hasSought) {
      this.#hasSought = false
      const old = this.#stream
      this.#stream = null
      this.#inbox.records = []
      const offsets = this.#inbox.owned.map(([topic, partition]) => {
        return { topic, partition, offset: BigInt(this.#inbox.positions.get(partition) ?? 0) }
      })
      await this.#consume({ mode: 'manual', offsets })
      await old.close() // before there is another one, a member without a stream would join the group again
    }
    return this.#inbox.take(waitMs)
  }

  assignment() {
    this.#refresh()
    return this.#inbox.owned
  }

  revoked() {
    return this.#inbox.revoked
  }

  async commit() {
    const topic = this.#topic
    const offsets = [...this.#inbox.positions].map(([partition, offset]) => {
      return { topic, partition, offset: BigInt(offset), leaderEpoch: this.messageBefore(partition, offset)?.leaderEpoch ?? -1 }
    })
    if (offsets.length > 0) await this.consumer.commit({ offsets })
  }

  async committed(topic, partition) {
    const found = await this.consumer.listCommittedOffsets({ topics: [{ topic, partitions: [partition] }] })
    return Number(found.get(topic).find(each => each !== undefined) ?? -1)
  }

  async ends(topic, partition) {
    const partitions = { [topic]: [partition] }
    const first = await this.consumer.listOffsets({ topics: [topic], partitions, timestamp: EARLIEST })
    const end = await this.consumer.listOffsets({ topics: [topic], partitions })
    return [Number(first.get(topic)[partition]), Number(end.get(topic)[partition])]
  }

  async offsetAt(topic, partition, timestamp) {
    const asked = { topics: [topic], partitions: { [topic]: [partition] }, timestamp: BigInt(timestamp) }
    const found = await this.consumer.listOffsetsWithTimestamps(asked)
    return Number(found.get(topic).get(partition).offset)
  }

  async close() {
    await this.#stream?.close()
    await this.consumer.close(true)
  }
}

export class Admin {
  #admin

  constructor(settings) {
    this.#admin = new kafka.Admin(connection(settings))
  }

  async connect() {}

  // One of the admin client's methods.
  async call(method, ...args) {
    return this.#admin[method](...args)
  }

  async close() {
    await this.#admin.close()
  }
}
