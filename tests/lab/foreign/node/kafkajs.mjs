// KafkaJS: a producer, a consumer and the admin client, called as its documentation does. Settings have Kafka's names.
import { readFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import LZ4Codec from '@2l/kafkajs-lz4'
import { Inbox, chunks } from './inbox.mjs'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs
const BATCH = 100

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = new LZ4Codec().codec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zstdCompressSync(encoder.buffer),
  decompress: async buffer => zstdDecompressSync(buffer)
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

function client(settings) {
  const config = { clientId: 'checks', brokers: settings['bootstrap.servers'].split(','), logLevel: logLevel.NOTHING }
  if (settings['ssl.ca.location']) config.ssl = { ca: [readFileSync(settings['ssl.ca.location'])] }
  if (settings['sasl.mechanism']) {
    const [username, password] = [settings['sasl.username'], settings['sasl.password']]
    config.sasl = { mechanism: settings['sasl.mechanism'].toLowerCase(), username, password }
  }
  if (settings.retries !== undefined) config.retry = { retries: settings.retries }
  return new Kafka(config)
}

export class Writer {
  #producer
  #settings
  #transaction = null

  constructor(settings) {
    const transactionalId = settings['transactional.id']
    const idempotent = settings['enable.idempotence'] ?? transactionalId !== undefined
    this.#settings = settings
    this.#producer = client(settings).producer({ idempotent, transactionalId, maxInFlightRequests: idempotent ? 1 : null })
  }

  async connect() {
    await this.#producer.connect()
  }

  // One batch after the other: KafkaJS changes the order of those that it sends side by side.
  async send(topic, records) {
    const messages = records.map(each => ({
      key: each.key,
      value: each.value,
      partition: each.partition,
      timestamp: each.timestamp ? String(each.timestamp) : undefined,
      headers: Object.fromEntries(each.headers)
    }))
    const acks = { all: -1, 1: 1, 0: 0 }[this.#settings.acks ?? 'all']
    const compression = CODECS[this.#settings['compression.type'] ?? 'none']
    const sender = this.#transaction ?? this.#producer
    for (const each of chunks(messages, BATCH)) await sender.send({ topic, messages: each, acks, compression })
  }

  // `send` has waited.
  async flush() {}

  // KafkaJS fetches the producer id with the first transaction, not before.
  async initTransactions() {
    this.#transaction = await this.#producer.transaction()
  }

  async begin() {
    this.#transaction ??= await this.#producer.transaction()
  }

  async sendOffsets(topic, offsets, _reader, group) {
    const partitions = offsets.map(([partition, offset]) => ({ partition, offset: String(offset) }))
    await this.#transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
  }

  async commit() {
    await this.#ended(each => each.commit())
  }

  async abort() {
    await this.#ended(each => each.abort())
  }

  async #ended(end) {
    const transaction = this.#transaction
    this.#transaction = null
    await end(transaction)
  }

  async close() {
    await this.#producer.disconnect()
  }
}

export class Reader {
  #kafka
  #consumer
  #admin = null
  #group
  #topic = null
  #inbox = new Inbox()

  constructor(settings) {
    this.#kafka = client(settings)
    this.#group = settings['group.id'] ?? `unused-${randomUUID()}`
    this.#consumer = this.#kafka.consumer({
      groupId: this.#group,
      sessionTimeout: settings['session.timeout.ms'] ?? 10_000,
      rebalanceTimeout: 10_000,
      heartbeatInterval: settings['heartbeat.interval.ms'] ?? 500,
      maxWaitTimeInMs: 200,
      readUncommitted: settings['isolation.level'] !== 'read_committed'
    })
    const { CRASH, GROUP_JOIN, REBALANCING } = this.#consumer.events
    this.#consumer.on(GROUP_JOIN, ({ payload }) => {
      const found = Object.entries(payload.memberAssignment)
      this.#inbox.own(found.flatMap(([topic, partitions]) => partitions.map(partition => [topic, partition])))
    })
    this.#consumer.on(REBALANCING, () => {
      this.#inbox.revoke(this.#inbox.owned)
      this.#inbox.own([])
    })
    this.#consumer.on(CRASH, ({ payload }) => {
      if (!payload.restart) this.#inbox.error = payload.error
    })
  }

  async subscribe(topic) {
    this.#topic = topic
    await this.#consumer.connect()
    await this.#consumer.subscribe({ topic, fromBeginning: true })
    const eachBatch = payload => this.#receive(payload)
    await this.#consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 3, eachBatch })
  }

  async #receive({ batch, heartbeat, isRunning, isStale, resolveOffset }) {
    for (const message of batch.messages) {
      if (!isRunning() || isStale()) return
      this.#inbox.add({
        topic: batch.topic,
        partition: batch.partition,
        offset: Number(message.offset),
        key: message.key,
        value: message.value,
        timestamp: Number(message.timestamp),
        headers: Object.entries(message.headers).flatMap(([name, value]) => [value].flat().map(each => [name, each]))
      })
      resolveOffset(message.offset)
    }
    await heartbeat()
  }

  // KafkaJS has no assignment without a group: a group of its own, whose only member goes to the offsets.
  async assign(topic, partitions, offset) {
    const joined = new Promise(resume => this.#consumer.on(this.#consumer.events.GROUP_JOIN, resume))
    await this.subscribe(topic)
    await joined
    if (offset > 0) for (const partition of partitions) this.seek(topic, partition, offset)
  }

  seek(topic, partition, offset) {
    this.#consumer.seek({ topic, partition, offset: String(offset) })
    this.#inbox.seek(partition, offset)
  }

  async poll(waitMs) {
    return this.#inbox.take(waitMs)
  }

  assignment() {
    return this.#inbox.owned
  }

  revoked() {
    return this.#inbox.revoked
  }

  async commit() {
    const positions = [...this.#inbox.positions]
    const found = positions.map(([partition, offset]) => ({ topic: this.#topic, partition, offset: String(offset) }))
    if (found.length > 0) await this.#consumer.commitOffsets(found)
  }

  async committed(topic, partition) {
    const admin = await this.#administrator()
    const [found] = await admin.fetchOffsets({ groupId: this.#group, topics: [topic] })
    return Number(found.partitions.find(each => each.partition === partition)?.offset ?? -1)
  }

  async ends(topic, partition) {
    const admin = await this.#administrator()
    const found = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === partition)
    return [Number(found.low), Number(found.high)]
  }

  async offsetAt(topic, partition, timestamp) {
    const admin = await this.#administrator()
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    return Number(found.find(each => each.partition === partition).offset)
  }

  async #administrator() {
    if (this.#admin === null) {
      this.#admin = this.#kafka.admin()
      await this.#admin.connect()
    }
    return this.#admin
  }

  async close() {
    await this.#consumer.disconnect()
    await this.#admin?.disconnect()
  }
}

export class Admin {
  #admin

  constructor(settings) {
    this.#admin = client(settings).admin()
  }

  async connect() {
    await this.#admin.connect()
  }

  // One of the admin client's methods.
  async call(method, ...args) {
    return this.#admin[method](...args)
  }

  async close() {
    await this.#admin.disconnect()
  }
}
