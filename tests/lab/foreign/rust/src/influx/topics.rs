//! Topics are created and deleted, and records deleted.

use anyhow::{Context, Result};
use rskafka::client::controller::ControllerClient;
use rskafka::client::error::ProtocolError;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};

use super::client::{connect, partition, read, write};
use super::errors::refused;
use crate::checks::{equal, wait_until};
use crate::given::Given;
use crate::record::{Record, equal_records, full, stored};

const REPLICAS: i16 = 3;
const TIMEOUT_MS: i32 = 30_000;

/// Create, list, use and delete a topic; be refused.
pub async fn create_and_delete(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("new")?);
    let controller = client.controller_client()?;
    controller.create_topic(topic, 5, REPLICAS, TIMEOUT_MS).await.context("create")?;
    let partitions = async || -> Result<Option<Vec<i32>>> {
        let found = client.list_topics().await?.into_iter().find(|each| each.name == topic);
        Ok(found.map(|each| each.partitions.into_iter().collect()))
    };
    equal("the partitions", partitions().await?, Some((0..5).collect()))?;
    let own = client.partition_client(topic, 4, UnknownTopicHandling::Retry).await?;
    let written: Vec<Record> = (0..10).map(|number| Record { partition: 4, ..full(number, 1) }).collect();
    write(&own, &written, Compression::NoCompression).await?;
    equal_records("of a new topic", &read(&own, 0, 10).await?, &stored(&written, 4, 0))?;
    be_refused(&controller, topic).await?;
    controller.delete_topic(topic, TIMEOUT_MS).await.context("delete")?;
    wait_until("end of the topic", async || Ok(partitions().await?.is_none())).await?;
    refused("deleted twice", controller.delete_topic(topic, TIMEOUT_MS).await, ProtocolError::UnknownTopicOrPartition)
}

async fn be_refused(controller: &ControllerClient, topic: &str) -> Result<()> {
    let again = controller.create_topic(topic, 5, REPLICAS, TIMEOUT_MS).await;
    refused("created twice", again, ProtocolError::TopicAlreadyExists)?;
    let wrong = format!("{topic}/wrong");
    let name = controller.create_topic(wrong, 1, REPLICAS, TIMEOUT_MS).await;
    refused("a wrong name", name, ProtocolError::InvalidTopicException)?;
    let other = format!("{topic}-other");
    let replicas = controller.create_topic(&other, 1, 4, TIMEOUT_MS).await;
    refused("four replicas on three brokers", replicas, ProtocolError::InvalidReplicationFactor)?;
    let none = controller.create_topic(&other, 0, REPLICAS, TIMEOUT_MS).await;
    refused("no partitions", none, ProtocolError::InvalidPartitions)
}

/// rskafka's requests for metadata allow that a topic is created: by `auto.create.topics.enable` one is.
pub async fn create_by_metadata(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("new")?);
    let own = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let written: Vec<Record> = (0..10).map(|number| full(number, 1)).collect();
    write(&own, &written, Compression::NoCompression).await?;
    equal_records("of the topic", &read(&own, 0, 10).await?, &stored(&written, 0, 0))
}

/// Records before an offset go: the start moves, reading begins there, and the rest stays as it is.
pub async fn delete_records(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let own = partition(&client, topic, 0).await?;
    let written: Vec<Record> = (0..100).map(|number| full(number, 1)).collect();
    for batch in written.chunks(30) {
        write(&own, batch, Compression::Zstd).await?;
    }
    let beyond = own.delete_records(101, TIMEOUT_MS).await;
    refused("deleted beyond the end", beyond, ProtocolError::OffsetOutOfRange)?;
    own.delete_records(37, TIMEOUT_MS).await.context("delete records")?;
    equal("the start", own.get_offset(OffsetAt::Earliest).await?, 37)?;
    equal("the end", own.get_offset(OffsetAt::Latest).await?, 100)?;
    let before = own.fetch_records(36, 1..1_000_000, 0).await;
    refused("read before the start", before, ProtocolError::OffsetOutOfRange)?;
    equal_records("that are left", &read(&own, 37, 63).await?, &stored(&written, 0, 0)[37..])?;
    own.delete_records(100, TIMEOUT_MS).await.context("delete all records")?;
    equal("the start of all deleted", own.get_offset(OffsetAt::Earliest).await?, 100)?;
    write(&own, &written, Compression::Zstd).await?;
    equal_records("after all were deleted", &read(&own, 100, 100).await?, &stored(&written, 0, 100))
}
