//! What brokers refuse, and how rskafka reports it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};

use super::client::{connect, connect_within, partition, read, to_own, write};
use crate::checks::{equal, short};
use crate::given::Given;
use crate::record::{Record, equal_records, full, stored};

const TIMEOUT_MS: i32 = 30_000;
const TOO_LARGE: usize = 2_000_000;

/// An error when a call was not refused by a broker for this reason.
pub fn refused<T: Debug>(what: &str, outcome: Result<T, Error>, wanted: ProtocolError) -> Result<()> {
    match outcome {
        Err(Error::ServerError { protocol_error, .. }) => equal(what, protocol_error, wanted),
        Err(error) => bail!("{what}: {error}, not {wanted:?}"),
        Ok(found) => bail!("{what}: {}, not {wanted:?}", short(&found)),
    }
}

/// Offsets out of range, a record that is too large, a partition that is not there, a name that no topic can have.
pub async fn of_requests(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    let own = partition(&client, topic, 0).await?;
    let written: Vec<Record> = (0..10).map(|number| full(number, 1)).collect();
    write(&own, &written, Compression::NoCompression).await?;
    for offset in [-1, 11, 1_000] {
        let outcome = own.fetch_records(offset, 1..1_000_000, 0).await;
        refused(&format!("read from {offset}"), outcome, ProtocolError::OffsetOutOfRange)?;
    }
    let large = Record { value: Some(vec![b'x'; TOO_LARGE]), ..full(0, 1) };
    let outcome = own.produce(vec![to_own(&large)], Compression::NoCompression).await;
    refused("a record of 2 MB", outcome, ProtocolError::MessageTooLarge)?;
    write(&own, std::slice::from_ref(&large), Compression::Gzip).await?;
    let mut wanted = stored(&written, 0, 0);
    wanted.push(Record { offset: 10, ..large });
    equal_records("beside refused ones", &read(&own, 0, 11).await?, &wanted)?;
    equal("the end", own.get_offset(OffsetAt::Latest).await?, 11)?;
    let outcome = client.partition_client(topic, 7, UnknownTopicHandling::Error).await;
    ensure!(matches!(outcome, Err(Error::InvalidResponse(_))), "a partition that is not there: {}", short(&outcome));
    let outcome = client.partition_client(format!("{topic}/wrong"), 0, UnknownTopicHandling::Error).await;
    refused("a wrong name", outcome, ProtocolError::InvalidTopicException)
}

/// A topic that the user has no rights to.
pub async fn of_access(given: &Given) -> Result<()> {
    let (client, topic) = (connect(given).await?, given.value("topic")?);
    ensure!(client.list_topics().await?.iter().all(|each| each.name != topic), "the user sees {topic}");
    let outcome = client.partition_client(topic, 0, UnknownTopicHandling::Error).await;
    refused("a topic without rights", outcome, ProtocolError::TopicAuthorizationFailed)?;
    let created = client.controller_client()?.create_topic(format!("{topic}-new"), 1, 3, TIMEOUT_MS).await;
    refused("a topic that may not be created", created, ProtocolError::TopicAuthorizationFailed)
}

/// A wrong password: no broker lets the client in, and its error names the reason.
pub async fn of_a_login(given: &Given) -> Result<()> {
    let Err(error) = connect_within(given, Duration::ZERO).await else { bail!("a wrong password was accepted") };
    let text = format!("{error:#}");
    ensure!(text.to_lowercase().contains("authentication"), "not refused for the password: {text}");
    Ok(())
}
