//! Topics are created and deleted, and requests refused.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use samsa::prelude::protocol::produce::request::Attributes;
use samsa::prelude::{
    ClusterMetadata, Error, KafkaCode, TcpConnection, create_topics, delete_topics, fetch, list_offsets, produce,
};

use super::client::{
    CLIENT_ID, CORRELATION_ID, PLAIN, Reported, addresses, assignment, metadata, plain, read, send, to_own, write,
};
use crate::checks::{equal, short, wait_until};
use crate::given::Given;
use crate::record::{Record, equal_records, full, stored};

const TOO_LARGE: usize = 2_000_000;

/// A connection to the controller.
async fn controller(given: &Given) -> Result<TcpConnection> {
    let known = cluster(given).await?;
    known.broker_connections.get(&known.get_leader_id_for_cluster()).cloned().context("no controller")
}

/// What is known of all topics.
async fn cluster(given: &Given) -> Result<ClusterMetadata<TcpConnection>> {
    ClusterMetadata::new(addresses(given)?, CORRELATION_ID, CLIENT_ID.to_owned(), vec![]).await.reported()
}

async fn create(given: &Given, topic: &str, partitions: i32) -> Result<KafkaCode> {
    let wanted = HashMap::from([(topic, partitions)]);
    let made = create_topics(controller(given).await?, CORRELATION_ID, CLIENT_ID, wanted).await.reported()?;
    equal("the topic of the response", &made.topics[0].name[..], topic.as_bytes())?;
    Ok(made.topics[0].error_code)
}

async fn delete(given: &Given, topic: &str) -> Result<KafkaCode> {
    let gone = delete_topics(controller(given).await?, CORRELATION_ID, CLIENT_ID, vec![topic]).await.reported()?;
    equal("the topic of the response", &gone.topics[0].name[..], topic.as_bytes())?;
    Ok(gone.topics[0].error_code)
}

/// Create, describe, use and delete a topic; be refused.
pub async fn create_and_delete(given: &Given) -> Result<()> {
    let topic = given.value("new")?;
    equal("created", create(given, topic, 2).await?, KafkaCode::None)?;
    equal("created twice", create(given, topic, 2).await?, KafkaCode::TopicAlreadyExists)?;
    equal("a wrong name", create(given, &format!("{topic}/wrong"), 1).await?, KafkaCode::InvalidTopic)?;
    wait_until("leaders of the topic", async || {
        let known = cluster(given).await?;
        let found = known.topics.iter().find(|each| each.name == topic);
        Ok(found.is_some_and(|each| each.partitions.iter().filter(|each| each.leader_id > 0).count() == 2))
    })
    .await?;
    let known = metadata(given, topic).await?;
    let replicas: Vec<usize> = known.topics[0].partitions.iter().map(|each| each.replica_nodes.len()).collect();
    equal("the replicas", replicas, vec![1, 1])?;
    equal("the brokers", known.brokers.len(), 3)?;
    let written: Vec<Record> = (0..50).map(|number| Record { partition: 0, ..full(number, 1) }).collect();
    wait_until("leader that has started", async || {
        let sent = send(given, PLAIN, topic, &written[..1]).await?;
        Ok(sent[0].responses[0].partition_responses[0].error_code == KafkaCode::None)
    })
    .await?;
    write(given, PLAIN, topic, &written[1..]).await?;
    let found = read(given, &assignment(topic, 1), &HashMap::new(), written.len()).await?;
    equal_records("of a new topic", &found, &plain(&stored(&written, 0, 0)))?;
    equal("deleted", delete(given, topic).await?, KafkaCode::None)?;
    wait_until("end of the topic", async || Ok(cluster(given).await?.topics.iter().all(|each| each.name != topic)))
        .await?;
    equal("deleted twice", delete(given, topic).await?, KafkaCode::UnknownTopicOrPartition)
}

/// Requests for a topic that is not there: they are sent without a look at metadata, which would create it.
pub async fn unknown_topic(given: &Given) -> Result<()> {
    let topic = given.value("new")?;
    let (connection, wanted) = (controller(given).await?, assignment(topic, 1));
    let message = to_own(topic, &full(0, 1));
    let attributes = Attributes::new(None);
    let sent = produce(connection.clone(), CORRELATION_ID, CLIENT_ID, 1, 30_000, &vec![message], attributes).await;
    let sent = sent.reported()?.context("no response")?;
    let code = sent.responses[0].partition_responses[0].error_code;
    equal("produce", code, KafkaCode::UnknownTopicOrPartition)?;
    let nowhere = HashMap::new();
    let (most, id) = (1_000_000, CORRELATION_ID);
    let found = fetch(connection.clone(), id, CLIENT_ID, 100, 1, most, most, 0, &wanted, &nowhere).await.reported()?;
    equal("fetch", found.topics[0].partitions[0].error_code, KafkaCode::UnknownTopicOrPartition)?;
    let found = list_offsets(connection, CORRELATION_ID, CLIENT_ID, &wanted, -1).await.reported()?;
    let code = found.topics[0].partitions[0].error_code;
    equal("list offsets", code, KafkaCode::UnknownTopicOrPartition)?;
    let is_known = cluster(given).await?.topics.iter().any(|each| each.name == topic);
    ensure!(!is_known, "the topic was created");
    Ok(())
}

/// A record that is too large, a wrong name, and a partition that is not there.
pub async fn errors(given: &Given) -> Result<()> {
    let topic = given.value("topic")?;
    let large = Record { value: Some(vec![b'x'; TOO_LARGE]), ..full(0, 1) };
    let sent = send(given, PLAIN, topic, &[large]).await?;
    let code = sent[0].responses[0].partition_responses[0].error_code;
    equal("a record of 2 MB", code, KafkaCode::MessageSizeTooLarge)?;
    let written = [full(1, 1)];
    write(given, PLAIN, topic, &written).await?;
    let found = read(given, &assignment(topic, 1), &HashMap::new(), 1).await?;
    equal_records("after a refused one", &found, &plain(&stored(&written, 0, 0)))?;
    let wrong = metadata(given, &format!("{topic}/wrong")).await.map(|_| ());
    let error = wrong.err().context("a wrong name is accepted")?;
    let is_named = matches!(error.downcast_ref(), Some(Error::KafkaError(KafkaCode::InvalidTopic)));
    ensure!(is_named, "a wrong name: {}", short(&error));
    let nowhere = Record { partition: 9, ..full(2, 1) };
    ensure!(send(given, PLAIN, topic, &[nowhere]).await.is_err(), "a record of partition 9 was sent");
    Ok(())
}
