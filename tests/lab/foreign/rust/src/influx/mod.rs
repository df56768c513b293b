//! rskafka, InfluxDB's client: acks is always `all`, and there are neither groups nor transactions.
//!
//! It asks for committed records, but reads no transaction's marker: it takes the record's bytes for its key. So what is
//! behind a marker it cannot read from Kafka either, and no check wants it.

pub mod client;
mod errors;
mod records;
mod topics;

use anyhow::{Result, bail};

use crate::given::Given;

pub async fn run(program: &str, given: &Given) -> Result<()> {
    match program {
        "produce" => records::produce(given).await,
        "batch" => records::produce_side_by_side(given).await,
        "assign" => records::read_by_assignment(given).await,
        "stream" => records::stream(given).await,
        "wait" => records::wait_for_a_record(given).await,
        "stable" => records::read_what_is_stable(given).await,
        "moved" => records::write_while_the_leader_moves(given).await,
        "topics" => topics::create_and_delete(given).await,
        "auto" => topics::create_by_metadata(given).await,
        "delete-records" => topics::delete_records(given).await,
        "errors" => errors::of_requests(given).await,
        "secured" => records::secured(given).await,
        "denied" => errors::of_access(given).await,
        "refused" => errors::of_a_login(given).await,
        _ => bail!("{program} is no program of rskafka"),
    }
}
