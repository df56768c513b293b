// Runs calls that come as lines of JSON, side by side, and answers each with a line: `node host.mjs kafkajs.mjs`.
//
// A call is {id, object, method, args}; `open` makes an object: args are a class of the program's, and what its
// constructor takes. Bytes are {bytes: base64}, BigInts {big: digits}, another object as an argument is {object: id}.
import { createInterface } from 'node:readline'
import { resolve } from 'node:path'

const program = await import(resolve(import.meta.dirname, process.argv[2]))
const objects = new Map()

function fromWire(value) {
  if (Array.isArray(value)) return value.map(fromWire)
  if (value === null || typeof value !== 'object') return value
  if (typeof value.bytes === 'string') return Buffer.from(value.bytes, 'base64')
  if (typeof value.big === 'string') return BigInt(value.big)
  if (typeof value.object === 'number') return objects.get(value.object)
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, fromWire(each)]))
}

function toWire(value) {
  if (Buffer.isBuffer(value)) return { bytes: value.toString('base64') }
  if (typeof value === 'bigint') return { big: value.toString() }
  if (Array.isArray(value)) return value.map(toWire)
  if (value === null || typeof value !== 'object') return value ?? null
  const entries = value instanceof Map ? [...value] : Object.entries(value)
  return Object.fromEntries(entries.map(([key, each]) => [key, toWire(each)]))
}

// The messages of an error and of those inside it, with the names that the clients have for Kafka's error codes.
function describe(error) {
  const inner = [error.cause, ...(error.errors ?? [])].filter(each => each instanceof Error)
  const name = error.apiId ?? error.type ?? error.code ?? error.name
  return [`${name}: ${error.message}`, ...inner.map(describe)].join('; ')
}

async function answer({ id, object, method, args }) {
  try {
    const given = args.map(fromWire)
    let value
    if (method === 'open') {
      const [kind, ...rest] = given
      objects.set(object, new program[kind](...rest))
    } else {
      value = await objects.get(object)[method](...given)
    }
    print({ id, value: toWire(value) })
  } catch (error) {
    print({ id, error: describe(error) })
  }
}

function print(reply) {
  process.stdout.write(JSON.stringify(reply) + '\n')
}

// KafkaJS and @platformatic/kafka reject promises that their callers never see; a call that matters has its own answer.
process.on('unhandledRejection', error => console.error('unhandled rejection', error))
for await (const line of createInterface({ input: process.stdin })) void answer(JSON.parse(line))
process.exit(0)
