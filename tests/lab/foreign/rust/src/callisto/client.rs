//! samsa's producer and consumer, and records in its own form.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use samsa::prelude::protocol::ProduceResponse;
use samsa::prelude::{
    BrokerAddress, ClusterMetadata, Compression, ConsumeMessage, ConsumerBuilder, Header, KafkaCode, PartitionOffsets,
    ProduceMessage, ProducerBuilder, TcpConnection, TopicPartitions, TopicPartitionsBuilder,
};

use crate::checks::equal;
use crate::given::Given;
use crate::record::Record;

pub const CLIENT_ID: &str = "clients";
pub const CORRELATION_ID: i32 = 7;
const MOST_BYTES: i32 = 1_000_000;
const BATCH: usize = 100;

/// samsa's errors are not errors of the standard library.
pub trait Reported<T> {
    fn reported(self) -> Result<T>;
}

impl<T> Reported<T> for samsa::prelude::Result<T> {
    fn reported(self) -> Result<T> {
        self.map_err(anyhow::Error::msg)
    }
}

/// How records are written.
#[derive(Clone)]
pub struct Producing {
    pub acks: i16,
    pub compression: Option<Compression>,
}

pub const PLAIN: Producing = Producing { acks: 1, compression: None };

/// The brokers that the program was started with.
pub fn addresses(given: &Given) -> Result<Vec<BrokerAddress>> {
    let parse = |server: &String| {
        let (host, port) = server.rsplit_once(':').with_context(|| format!("{server} is no HOST:PORT"))?;
        Ok(BrokerAddress { host: host.to_owned(), port: port.parse()? })
    };
    given.servers.iter().map(parse).collect()
}

/// What is known of a topic, and a connection to each broker.
pub async fn metadata(given: &Given, topic: &str) -> Result<ClusterMetadata<TcpConnection>> {
    let topics = vec![topic.to_owned()];
    ClusterMetadata::new(addresses(given)?, CORRELATION_ID, CLIENT_ID.to_owned(), topics).await.reported()
}

pub fn assignment(topic: &str, partitions: i32) -> TopicPartitions {
    TopicPartitionsBuilder::new().assign(topic.to_owned(), (0..partitions).collect()).build()
}

pub fn to_own(topic: &str, record: &Record) -> ProduceMessage {
    ProduceMessage {
        topic: topic.to_owned(),
        partition_id: record.partition,
        key: record.key.clone().map(Bytes::from),
        value: record.value.clone().map(Bytes::from),
        headers: record.headers.iter().map(|(key, value)| Header::new(key.clone(), value.clone().into())).collect(),
    }
}

/// A record as samsa gives it: without headers and a time.
pub fn from_own(message: ConsumeMessage) -> Record {
    Record {
        partition: message.partition_index,
        offset: i64::try_from(message.offset).expect("an offset"),
        key: Some(message.key.to_vec()),
        value: Some(message.value.to_vec()),
        headers: vec![],
        timestamp_ms: 0,
    }
}

/// Records as `from_own` makes them.
pub fn plain(records: &[Record]) -> Vec<Record> {
    records.iter().map(|each| Record { headers: vec![], timestamp_ms: 0, ..each.clone() }).collect()
}

/// Write records in batches; the responses of those with acks.
pub async fn send(given: &Given, how: Producing, topic: &str, records: &[Record]) -> Result<Vec<ProduceResponse>> {
    let batches: Vec<Vec<ProduceMessage>> =
        records.chunks(BATCH).map(|batch| batch.iter().map(|each| to_own(topic, each)).collect()).collect();
    let count = batches.len();
    let mut builder =
        ProducerBuilder::<TcpConnection>::new(addresses(given)?, vec![topic.to_owned()]).await.reported()?;
    builder.required_acks(how.acks).timeout_ms(30_000);
    if let Some(compression) = how.compression {
        builder.compression(compression);
    }
    let responses = builder.build_from_stream(futures::stream::iter(batches)).await.collect::<Vec<_>>().await;
    equal("number of batches", responses.len(), count)?;
    Ok(responses.into_iter().flatten().flatten().collect())
}

/// Write records; each partition's first offset is the one in the first response.
pub async fn write(given: &Given, how: Producing, topic: &str, records: &[Record]) -> Result<HashMap<i32, i64>> {
    let acks = how.acks;
    let mut first = HashMap::new();
    let responses = send(given, how, topic, records).await?;
    equal("whether there are responses", responses.is_empty(), acks == 0)?;
    for partition in responses.iter().flat_map(|each| &each.responses).flat_map(|each| &each.partition_responses) {
        equal("the error of a batch", partition.error_code, KafkaCode::None)?;
        let known = first.entry(partition.index).or_insert(partition.base_offset);
        *known = partition.base_offset.min(*known);
    }
    Ok(first)
}

/// Read so many records of all partitions, each from an offset; without one, from 0. They are sorted.
pub async fn read(
    given: &Given,
    partitions: &TopicPartitions,
    from: &PartitionOffsets,
    count: usize,
) -> Result<Vec<Record>> {
    let builder = ConsumerBuilder::<TcpConnection>::new(addresses(given)?, partitions.clone()).await.reported()?;
    take(builder.seek(from), count).await
}

/// The same with a consumer that knows where it begins.
pub async fn take(builder: ConsumerBuilder<TcpConnection>, count: usize) -> Result<Vec<Record>> {
    let mut consumer = builder.max_bytes(MOST_BYTES).max_partition_bytes(MOST_BYTES).build();
    let mut found: Vec<Record> = vec![];
    while found.len() < count {
        let (messages, _) = consumer.next_batch().await.reported().context("read")?;
        found.extend(messages.map(from_own));
    }
    found.sort_by_key(|each| (each.partition, each.offset));
    Ok(found)
}
