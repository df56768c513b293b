//! Records are written and read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use rskafka::client::consumer::{StartOffset, StreamConsumerBuilder};
use rskafka::client::partition::{Compression, OffsetAt};
use rskafka::client::producer::BatchProducerBuilder;
use rskafka::client::producer::aggregator::RecordAggregator;

use super::client::{connect, from_own, partition, read, time, to_own, write};
use crate::checks::{equal, short};
use crate::given::Given;
use crate::record::{FIRST_MS, Record, equal_records, full, sparse, stored, values};

const PARTITIONS: i32 = 3;
const COUNT: i64 = 300;
const STREAMED: i64 = 200;
const STREAMED_BATCH: i64 = 20;
const MANY: i64 = 2_000;
const SMALL_BATCH_BYTES: usize = 2_000;
const LINGER: Duration = Duration::from_millis(5);
const LONG_WAIT_MS: i32 = 30_000;
const SHORT_WAIT_MS: i32 = 300;
const PROMPT: Duration = Duration::from_secs(15);

fn compression(name: &str) -> Result<Compression> {
    Ok(match name {
        "none" => Compression::NoCompression,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => bail!("{name} is no codec"),
    })
}

/// Write two batches to each partition, read all by assignment, and compare all that a record has.
pub async fn produce(given: &Given) -> Result<()> {
    let (client, topic, codec) = (connect(given).await?, given.value("topic")?, compression(given.value("codec")?)?);
    let written: Vec<Record> = (0..2 * COUNT).map(|number| sparse(number, PARTITIONS)).collect();
    let (first, second) = written.split_at(written.len() / 2);
    for number in 0..PARTITIONS {
        let own = partition(&client, topic, number).await?;
        write(&own, first, codec).await?;
        write(&own, second, codec).await?;
        let wanted = stored(&written, number, 0);
        equal_records(&format!("partition {number}"), &read(&own, 0, wanted.len()).await?, &wanted)?;
    }
    Ok(())
}

/// Records come one by one from as many tasks, and a BatchProducer makes batches of them: each has the offset that its
/// task was told, and none is missing or there twice.
pub async fn produce_side_by_side(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let own = Arc::new(partition(&client, topic, 0).await?);
    let producer = BatchProducerBuilder::new(Arc::clone(&own))
        .with_linger(LINGER)
        .with_compression(Compression::Lz4)
        .build(RecordAggregator::new(SMALL_BATCH_BYTES));
    let written: Vec<Record> = (0..MANY).map(|number| full(number, 1)).collect();
    let offsets = try_join_all(written.iter().map(|each| producer.produce(to_own(each)))).await?;
    let mut by_offset = BTreeMap::new();
    for (record, offset) in written.into_iter().zip(offsets) {
        let before = by_offset.insert(offset, Record { offset, ..record });
        ensure!(before.is_none(), "offset {offset} was given twice");
    }
    equal("the offsets", by_offset.keys().copied().collect::<Vec<_>>(), (0..MANY).collect())?;
    let wanted: Vec<Record> = by_offset.into_values().collect();
    equal_records("of many tasks", &read(&own, 0, wanted.len()).await?, &wanted)?;
    equal("the end", own.get_offset(OffsetAt::Latest).await?, MANY)
}

/// Read from an offset in the middle of a batch, and from a time; ask for a partition's ends.
pub async fn read_by_assignment(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let own = partition(&client, topic, 0).await?;
    equal("the end of an empty log", own.get_offset(OffsetAt::Latest).await?, 0)?;
    let written: Vec<Record> =
        (0..100).map(|number| Record { timestamp_ms: FIRST_MS + 10 * number, ..full(number, 1) }).collect();
    for batch in written.chunks(50) {
        write(&own, batch, Compression::NoCompression).await?;
    }
    let wanted = stored(&written, 0, 0);
    equal_records("from an offset", &read(&own, 30, 70).await?, &wanted[30..])?;
    let (records, high_watermark) = own.fetch_records(80, 1..1_000_000, SHORT_WAIT_MS).await?;
    equal("how many there are from the offset on", records.len(), 20)?;
    equal("the high watermark", high_watermark, 100)?;
    let (records, _) = own.fetch_records(0, 1..2, SHORT_WAIT_MS).await?;
    equal("the first batch, which is larger than the limit", records.len(), 50)?;
    equal("the start", own.get_offset(OffsetAt::Earliest).await?, 0)?;
    equal("the end", own.get_offset(OffsetAt::Latest).await?, 100)?;
    let at = |timestamp_ms| own.get_offset(OffsetAt::Timestamp(time(timestamp_ms)));
    equal("the offset of a record's time", at(FIRST_MS + 690).await?, 69)?;
    equal("the offset of a time between two", at(FIRST_MS + 695).await?, 70)?;
    equal("the offset of a time before all", at(FIRST_MS - 1).await?, 0)?;
    equal("the offset of a time after all", at(FIRST_MS + 1_000).await?, -1)?;
    equal_records("from a time", &read(&own, 70, 30).await?, &wanted[70..])
}

/// A StreamConsumer begins at the start, at an offset, and at the end. The number of a record is its offset.
pub async fn stream(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let own = Arc::new(partition(&client, topic, 0).await?);
    let fill = async |begin: i64| {
        let batch: Vec<Record> = (begin..begin + STREAMED_BATCH).map(|number| sparse(number, 1)).collect();
        write(&own, &batch, Compression::Gzip).await
    };
    for begin in (0..STREAMED).step_by(usize::try_from(STREAMED_BATCH)?) {
        fill(begin).await?;
    }
    let streamed = async |start, count| -> Result<Vec<Record>> {
        let builder = StreamConsumerBuilder::new(Arc::clone(&own), start);
        let found = builder.with_max_batch_size(10_000).with_max_wait_ms(SHORT_WAIT_MS).build().take(count);
        let found: Vec<_> = found.try_collect().await.context("a stream")?;
        Ok(found.into_iter().map(|(each, _)| from_own(0, each)).collect())
    };
    let wanted = |begin: i64, count| -> Vec<Record> {
        (begin..begin + count).map(|number| Record { offset: number, ..sparse(number, 1) }).collect()
    };
    equal_records("a stream from the start", &streamed(StartOffset::Earliest, 200).await?, &wanted(0, 200))?;
    equal_records("a stream from an offset", &streamed(StartOffset::At(113), 87).await?, &wanted(113, 87))?;
    let more = async {
        for begin in (STREAMED..).step_by(usize::try_from(STREAMED_BATCH)?) {
            fill(begin).await?;
        }
        bail!("no end of offsets")
    };
    let newest: Vec<Record> = tokio::select! {
        found = streamed(StartOffset::Latest, 100) => found?,
        failed = more => failed?,
    };
    let begin = newest[0].offset;
    ensure!(begin >= STREAMED, "a stream from the end begins at {begin}, the end was {STREAMED}");
    equal_records("a stream from the end", &newest, &wanted(begin, 100))
}

/// A fetch at the end waits: it comes back without records after its time, and with a record as soon as there is one.
pub async fn wait_for_a_record(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let (reader, writer) = (partition(&client, topic, 0).await?, partition(&client, topic, 0).await?);
    let begun = Instant::now();
    let (none, end) = reader.fetch_records(0, 1..1_000_000, SHORT_WAIT_MS).await?;
    equal("what an empty log has", (none, end), (vec![], 0))?;
    let waited = begun.elapsed();
    ensure!(waited >= Duration::from_millis(u64::try_from(SHORT_WAIT_MS)?), "waited for {waited:?}");
    let written = [full(0, 1)];
    let begun = Instant::now();
    let later = async {
        tokio::time::sleep(Duration::from_millis(u64::try_from(SHORT_WAIT_MS)?)).await;
        write(&writer, &written, Compression::NoCompression).await
    };
    let fetched = async { Ok(reader.fetch_records(0, 1..1_000_000, LONG_WAIT_MS).await?) };
    let ((found, _), _) = tokio::try_join!(fetched, later)?;
    let found: Vec<Record> = found.into_iter().map(|each| from_own(0, each)).collect();
    equal_records("that was waited for", &found, &stored(&written, 0, 0))?;
    ensure!(begun.elapsed() < PROMPT, "the record came after {:?}", begun.elapsed());
    Ok(())
}

/// Write one batch after the other until the file `stop` is there, and some after it: each record is at the offset that
/// was told, and the offsets rise. The leader moves meanwhile; a batch whose response was lost may be there twice.
pub async fn write_while_the_leader_moves(given: &Given) -> Result<()> {
    let (client, topic, stop) = (connect(given).await?, given.value("topic")?, Path::new(given.value("stop")?));
    let own = partition(&client, topic, 0).await?;
    let mut written: Vec<Record> = vec![];
    let mut left = 100;
    while left > 0 {
        let begin = i64::try_from(written.len())?;
        let batch = [full(begin, 1), full(begin + 1, 1)];
        written.extend(write(&own, &batch, Compression::Gzip).await?);
        left -= i64::from(stop.exists());
    }
    let offsets: Vec<i64> = written.iter().map(|each| each.offset).collect();
    ensure!(offsets.is_sorted_by(|one, next| one < next), "offsets: {}", short(&offsets));
    let end = own.get_offset(OffsetAt::Latest).await?;
    let mut found = read(&own, 0, usize::try_from(end)?).await?;
    equal("the end", found.last().map(|each| each.offset + 1), Some(end))?;
    found.retain(|each| offsets.binary_search(&each.offset).is_ok());
    equal_records("at the offset that was told", &found, &written)
}

/// rskafka reads committed records: those before the first open transaction.
pub async fn read_what_is_stable(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let stable: i64 = given.value("stable")?.parse()?;
    let own = partition(&client, topic, 0).await?;
    equal("the last stable offset", own.get_offset(OffsetAt::Latest).await?, stable)?;
    let (found, high_watermark) = own.fetch_records(0, 1..1_000_000, SHORT_WAIT_MS).await?;
    equal("the high watermark", high_watermark, stable + 2)?;
    let wanted: Vec<Vec<u8>> = (0..stable).map(|number| number.to_string().into_bytes()).collect();
    equal("the values", found.into_iter().filter_map(|each| each.record.value).collect(), wanted)?;
    let (none, _) = own.fetch_records(stable, 1..1_000_000, SHORT_WAIT_MS).await?;
    equal("what is read beyond the last stable offset", none, vec![])
}

/// Write and read as a user.
pub async fn secured(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let written: Vec<Record> = (0..COUNT).map(|number| full(number, PARTITIONS)).collect();
    let mut found = Vec::new();
    for number in 0..PARTITIONS {
        let own = partition(&client, topic, number).await?;
        let count = write(&own, &written, Compression::Zstd).await?.len();
        found.extend(read(&own, 0, count).await?);
    }
    equal("the values", values(&found), values(&written))
}
