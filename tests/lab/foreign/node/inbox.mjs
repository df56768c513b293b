// Records that came to a consumer and were not polled yet, its positions, and what a rebalance took from it.
const POLL_STEP_MS = 10

export class Inbox {
  records = []
  positions = new Map()
  owned = []
  revoked = []
  error = null

  add(record) {
    const floor = this.positions.get(record.partition) ?? 0
    if (record.offset >= floor) this.records.push(record)
  }

  // At most 500 records, after waiting a little for the first one. The consumer's own error, once it has one.
  async take(waitMs) {
    const end = Date.now() + waitMs
    while (this.records.length === 0 && this.error === null && Date.now() < end) {
      await new Promise(resume => setTimeout(resume, POLL_STEP_MS))
    }
    if (this.error !== null) throw this.error
    const found = this.records.splice(0, 500)
    for (const each of found) this.positions.set(each.partition, each.offset + 1)
    return found
  }

  seek(partition, offset) {
    this.records = this.records.filter(each => each.partition !== partition)
    this.positions.set(partition, offset)
  }

  // The new assignment as [topic, partition] pairs. Records and positions of what is not in `kept` are gone.
  own(partitions, kept = []) {
    const stays = new Set(kept.map(([, partition]) => partition))
    this.records = this.records.filter(each => stays.has(each.partition))
    for (const partition of [...this.positions.keys()]) if (!stays.has(partition)) this.positions.delete(partition)
    this.owned = partitions
  }

  revoke(partitions) {
    if (partitions.length > 0) this.revoked.push(partitions)
  }
}

export function chunks(values, size) {
  const found = []
  for (let start = 0; start < values.length; start += size) found.push(values.slice(start, start + size))
  return found
}
