//! rskafka's client: connections, and records in its own form.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, Utc};
use futures::FutureExt;
use rskafka::BackoffConfig;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, OauthBearerCredentials, SaslConfig};
use rskafka::record::{Record as OwnRecord, RecordAndOffset};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::given::Given;
use crate::record::{Record, of_partition, stored};

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(60);
const MOST_BYTES: i32 = 10_000_000;
const WAIT_MS: i32 = 500;

pub async fn connect(given: &Given) -> Result<Client> {
    connect_within(given, GIVE_UP).await
}

/// A client; without `authority` for a listener without TLS, without `mechanism` for one without SASL.
///
/// `limit` is how long it repeats what failed.
pub async fn connect_within(given: &Given, limit: Duration) -> Result<Client> {
    let backoff = BackoffConfig { init_backoff: RETRY_FIRST, max_backoff: RETRY_MAX, base: 2.0, deadline: Some(limit) };
    let mut builder = ClientBuilder::new(given.servers.clone()).backoff_config(backoff);
    if let Some(authority) = given.optional("authority") {
        builder = builder.tls_config(Arc::new(tls(authority, given.optional("certificate"))?));
    }
    if let Some(mechanism) = given.optional("mechanism") {
        builder = builder.sasl_config(login(mechanism, given)?);
    }
    builder.build().await.context("connect")
}

/// `user` and `password`, or a `token`.
fn login(mechanism: &str, given: &Given) -> Result<SaslConfig> {
    if mechanism == "OAUTHBEARER" {
        let token = given.value("token")?.to_owned();
        let callback = move || futures::future::ready(Ok(token.clone())).boxed();
        let (authz_id, bearer_kvs) = (None, vec![]);
        return Ok(SaslConfig::Oauthbearer(OauthBearerCredentials {
            callback: Arc::new(callback),
            authz_id,
            bearer_kvs,
        }));
    }
    let credentials = Credentials::new(given.value("user")?.to_owned(), given.value("password")?.to_owned());
    Ok(match mechanism {
        "PLAIN" => SaslConfig::Plain(credentials),
        "SCRAM-SHA-256" => SaslConfig::ScramSha256(credentials),
        "SCRAM-SHA-512" => SaslConfig::ScramSha512(credentials),
        _ => bail!("{mechanism} is no mechanism"),
    })
}

/// `authority` is a PEM file, `certificate` one with a certificate and its key.
fn tls(authority: &str, certificate: Option<&str>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let Some(own) = certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_file_iter(own)?.collect::<Result<Vec<_>, _>>()?;
    Ok(builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(own)?)?)
}

pub async fn partition(client: &Client, topic: &str, partition: i32) -> Result<PartitionClient> {
    let found = client.partition_client(topic, partition, UnknownTopicHandling::Error).await;
    found.with_context(|| format!("client of {topic}-{partition}"))
}

pub fn to_own(record: &Record) -> OwnRecord {
    OwnRecord {
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record.headers.iter().cloned().collect(),
        timestamp: time(record.timestamp_ms),
    }
}

pub fn from_own(partition: i32, found: RecordAndOffset) -> Record {
    Record {
        partition,
        offset: found.offset,
        key: found.record.key,
        value: found.record.value,
        headers: found.record.headers.into_iter().collect(),
        timestamp_ms: found.record.timestamp.timestamp_millis(),
    }
}

pub fn time(timestamp_ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(timestamp_ms).expect("a time of our age")
}

/// Write the records of a partition as one batch; they are returned with the offsets that the broker gave them.
pub async fn write(to: &PartitionClient, records: &[Record], compression: Compression) -> Result<Vec<Record>> {
    let own = of_partition(records, to.partition());
    let offsets = to.produce(own.iter().map(to_own).collect(), compression).await.context("produce")?;
    let first = *offsets.first().context("no offsets")?;
    crate::checks::equal("offsets", offsets, (first..).take(own.len()).collect())?;
    Ok(stored(records, to.partition(), first))
}

/// Read so many records from an offset on.
pub async fn read(from: &PartitionClient, offset: i64, count: usize) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    let mut next = offset;
    while found.len() < count {
        let (records, _) = from.fetch_records(next, 1..MOST_BYTES, WAIT_MS).await.context("fetch")?;
        found.extend(records.into_iter().map(|each| from_own(from.partition(), each)));
        next = found.last().map_or(next, |each| each.offset + 1);
    }
    Ok(found)
}
