//! samsa, by Callisto Labs. What it cannot do with Kafka either, no check wants of it:
//!
//! - acks=all: it does not read those responses, and takes them for the ones of later requests.
//! - null keys and values: it writes and reads them as empty ones. It doubles timestamps' differences as it reads.
//! - lz4, which it writes without a frame, and zstd, which it sends in requests that are older than zstd: Kafka refuses
//!   both, and so do our brokers.
//! - an error of SyncGroup: it cannot parse that response, and its member ends. Its user joins again.
//! - topics with more than one replica: it makes them with one.

mod client;
mod groups;
mod records;
mod topics;

use anyhow::{Result, bail};

use crate::given::Given;

pub async fn run(program: &str, given: &Given) -> Result<()> {
    match program {
        "produce" => records::produce(given).await,
        "be-read" => records::read_what_rskafka_writes(given).await,
        "assign" => records::read_by_assignment(given).await,
        "refused-codec" => records::be_refused(given).await,
        "share" => groups::share(given).await,
        "go-on" => groups::go_on(given).await,
        "requests" => groups::requests(given).await,
        "topics" => topics::create_and_delete(given).await,
        "unknown-topic" => topics::unknown_topic(given).await,
        "errors" => topics::errors(given).await,
        _ => bail!("{program} is no program of samsa"),
    }
}
