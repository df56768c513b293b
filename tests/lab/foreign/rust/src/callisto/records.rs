//! Records are written and read.

use std::collections::HashMap;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use rskafka::client::partition::Compression as RskafkaCompression;
use samsa::prelude::{Compression, ConsumerBuilder, KafkaCode, PartitionOffsets, TcpConnection, list_offsets};

use super::client::{
    CLIENT_ID, CORRELATION_ID, PLAIN, Producing, Reported, addresses, assignment, metadata, plain, read, send, take,
    write,
};
use crate::checks::{equal, wait_until};
use crate::given::Given;
use crate::influx::client as rskafka_client;
use crate::record::{Record, equal_records, full, of_partition, stored};

const PARTITIONS: i32 = 3;
const COUNT: i64 = 300;
const PER_PARTITION: i64 = COUNT / PARTITIONS as i64;
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

fn compression(name: &str) -> Result<Option<Compression>> {
    Ok(match name {
        "none" => None,
        "gzip" => Some(Compression::Gzip),
        "snappy" => Some(Compression::Snappy),
        "lz4" => Some(Compression::Lz4),
        "zstd" => Some(Compression::Zstd),
        _ => bail!("{name} is no codec"),
    })
}

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_millis())?)
}

fn records(begin: i64, count: i64) -> Vec<Record> {
    (begin..begin + count).map(|number| full(number, PARTITIONS)).collect()
}

/// All records of each partition as they are stored, when those of `written` begin at these offsets.
fn all_stored(written: &[Record], from: i64) -> Vec<Record> {
    (0..PARTITIONS).flat_map(|number| stored(written, number, from)).collect()
}

/// The offset of a partition's end, of its start, or of a time.
async fn offset_at(given: &Given, topic: &str, partition: i32, timestamp: i64) -> Result<i64> {
    let known = metadata(given, topic).await?;
    let leader = known.get_leader_id_for_topic_partition(topic, partition).context("no leader")?;
    let connection = known.broker_connections[&leader].clone();
    let wanted = HashMap::from([(topic.to_owned(), vec![partition])]);
    let found = list_offsets(connection, CORRELATION_ID, CLIENT_ID, &wanted, timestamp).await.reported()?;
    let (_, found) = found.into_box_iter().next().context("no offset")?;
    equal("the error of an offset", found.error_code, KafkaCode::None)?;
    Ok(found.offset)
}

/// Write to each partition with acks=1 and 0; samsa reads keys and values, rskafka all that a record has.
pub async fn produce(given: &Given) -> Result<()> {
    let (topic, codec) = (given.value("topic")?, compression(given.value("codec")?)?);
    let client = rskafka_client::connect(given).await?;
    let begun_ms = now_ms()?;
    for (acks, from) in [(1, 0), (0, PER_PARTITION)] {
        let written = records(3 * from, COUNT);
        let first = write(given, Producing { acks, compression: codec.clone() }, topic, &written).await?;
        if acks != 0 {
            equal("the first offsets", first, (0..PARTITIONS).map(|number| (number, from)).collect())?;
        }
        let begin: PartitionOffsets = (0..PARTITIONS).map(|number| ((topic.to_owned(), number), from)).collect();
        let found = read(given, &assignment(topic, PARTITIONS), &begin, written.len()).await?;
        let wanted = all_stored(&written, from);
        equal_records(&format!("with acks={acks}"), &found, &plain(&wanted))?;
        for number in 0..PARTITIONS {
            let partition = rskafka_client::partition(&client, topic, number).await?;
            let wanted = of_partition(&wanted, number);
            let mut found = rskafka_client::read(&partition, from, wanted.len()).await?;
            let times: Vec<i64> = found.iter().map(|each| each.timestamp_ms).collect();
            ensure!(times.is_sorted() && begun_ms <= times[0] && *times.last().unwrap() <= now_ms()?, "{times:?}");
            found.iter_mut().zip(&wanted).for_each(|(each, other)| each.timestamp_ms = other.timestamp_ms);
            equal_records(&format!("with acks={acks}, read by rskafka"), &found, &wanted)?;
        }
    }
    Ok(())
}

/// samsa reads records of rskafka's.
pub async fn read_what_rskafka_writes(given: &Given) -> Result<()> {
    let (client, topic) = (rskafka_client::connect(given).await?, given.value("topic")?);
    let written = records(0, COUNT);
    for number in 0..PARTITIONS {
        let partition = rskafka_client::partition(&client, topic, number).await?;
        rskafka_client::write(&partition, &written, RskafkaCompression::Gzip).await?;
    }
    let found = read(given, &assignment(topic, PARTITIONS), &HashMap::new(), written.len()).await?;
    equal_records("of rskafka's", &found, &plain(&all_stored(&written, 0)))
}

/// Read from an offset at the beginning of a batch, and from a time; ask for a partition's ends.
pub async fn read_by_assignment(given: &Given) -> Result<()> {
    let topic = given.value("topic")?;
    let mut written: Vec<Record> = (0..200).map(|number| full(number, 1)).collect();
    let mut middle_ms = 0;
    for half in written.chunks(100) {
        middle_ms = now_ms()?;
        write(given, PLAIN, topic, half).await?;
        // The records' times are those of the client: the next ones are of another millisecond.
        wait_until("next millisecond", async || Ok(now_ms()? > middle_ms)).await?;
    }
    written = plain(&stored(&written, 0, 0));
    let only = assignment(topic, 1);
    let at = HashMap::from([((topic.to_owned(), 0), 100)]);
    equal_records("from an offset", &read(given, &only, &at, 100).await?, &written[100..])?;
    equal("the start", offset_at(given, topic, 0, EARLIEST).await?, 0)?;
    equal("the end", offset_at(given, topic, 0, LATEST).await?, 200)?;
    equal("the offset of a time", offset_at(given, topic, 0, middle_ms).await?, 100)?;
    equal("the offset of a time after all", offset_at(given, topic, 0, now_ms()? + 60_000).await?, -1)?;
    let since = |timestamp| async move {
        let builder =
            ConsumerBuilder::<TcpConnection>::new(addresses(given)?, assignment(topic, 1)).await.reported()?;
        builder.seek_to_timestamp(timestamp).await.reported()
    };
    equal_records("from a time", &take(since(middle_ms).await?, 100).await?, &written[100..])?;
    equal_records("from the start", &take(since(EARLIEST).await?, 200).await?, &written)
}

/// A codec that samsa writes otherwise than Kafka reads it: refused, and nothing is stored.
pub async fn be_refused(given: &Given) -> Result<()> {
    let (topic, codec) = (given.value("topic")?, compression(given.value("codec")?)?);
    let written: Vec<Record> = (0..10).map(|number| full(number, 1)).collect();
    let responses = send(given, Producing { acks: 1, compression: codec }, topic, &written).await?;
    let code = responses[0].responses[0].partition_responses[0].error_code;
    ensure!(code != KafkaCode::None, "it was accepted");
    equal("the end", offset_at(given, topic, 0, LATEST).await?, 0)
}
