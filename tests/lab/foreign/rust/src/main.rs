//! Rust's Kafka clients: `clients CLIENT PROGRAM HOST:PORT,... NAME=VALUE ...` does one thing, with exit code 1 when it
//! fails.

mod callisto;
mod checks;
mod given;
mod influx;
mod record;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use given::Given;

const LONGEST: Duration = Duration::from_secs(150);

#[tokio::main]
async fn main() -> ExitCode {
    // Both clients bring a cryptographic library along: rustls must be told which one it uses.
    rustls::crypto::ring::default_provider().install_default().expect("the first provider");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = tokio::time::timeout(LONGEST, run(&arguments)).await;
    let error = match outcome {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => format!("no end after {LONGEST:?}"),
    };
    eprintln!("{error}");
    ExitCode::FAILURE
}

async fn run(arguments: &[String]) -> Result<()> {
    let [client, program, values @ ..] = arguments else {
        bail!("CLIENT and PROGRAM are missing");
    };
    let given = Given::parse(values)?;
    match client.as_str() {
        "rskafka" => influx::run(program, &given).await,
        "samsa" => callisto::run(program, &given).await,
        _ => bail!("{client} is no client"),
    }
}
